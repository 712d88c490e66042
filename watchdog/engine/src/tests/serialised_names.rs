//! Recordings and state files of earlier versions hold these texts. They must stay readable, and be written the same.

use rstest::rstest;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::actions::{ActionLogRecord, Authority, Batch};
use crate::gate::GateRecord;
use crate::input::Input;

const PROCESS: &str = r#"{"pid":7,"start_time":70}"#;

fn unchanged<T: Serialize + DeserializeOwned>(text: &str) {
    let text = text.replace("PROCESS", PROCESS);
    let value: T = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(serde_json::to_string(&value).unwrap(), text);
}

#[rstest]
#[case::own_process(r#"{"Watchdog":PROCESS}"#)]
#[case::permissions(r#"{"Rights":{"missing":null,"guarded":[PROCESS]}}"#)]
#[case::cgroup_limits(r#"{"Room":[PROCESS,[]]}"#)]
#[case::client_gone(r#"{"Withdraw":[PROCESS,"Gone"]}"#)]
#[case::cancelled(r#"{"Withdraw":[PROCESS,"Cancelled"]}"#)]
#[case::resumed(r#"{"Resume":[{"Over":3}]}"#)]
#[case::request(r#"{"Ask":{"uid":1000,"what":{"End":1},"expect":null}}"#)]
#[case::result(r#"{"Struck":{"action":3,"blow":"Loosen","at":5,"answers":[[PROCESS,"Gone"]]}}"#)]
fn input_names_are_stable(#[case] text: &str) {
    unchanged::<Input>(text);
}

#[rstest]
#[case::count(r#"{"Count":3}"#)]
#[case::sending(r#"{"Striking":{"action":3,"blow":"Term","process":PROCESS,"at":5}}"#)]
#[case::sent(r#"{"Struck":{"action":3,"blow":"Kill","process":PROCESS,"answer":{"Refused":"no"}}}"#)]
#[case::begun(
    r#"{"Begun":{"id":3,"kind":"terminate","by":{"Person":1000},"grounds":"LeftBehind","urgent":false,"finding":null,"session":1,"owner":1000,"user":1000,"reason":"r","evidence":{},"targets":[{"process":PROCESS,"parent":null,"kind":"tool","name":"n","uid":1000,"memory":9}],"cgroup":null,"began":5,"available":6}}"#
)]
fn action_log_names_are_stable(#[case] text: &str) {
    unchanged::<ActionLogRecord>(text);
}

#[rstest]
#[case::head(r#"{"held_back":{"head":PROCESS,"since":5,"passed":1,"round":2,"passed_in_round":3,"cgroup":null}}"#)]
#[case::left(r#"{"left":PROCESS}"#)]
#[case::granted(
    r#"{"granted":{"process":PROCESS,"profile":"p","uid":1000,"granted":5,"expected":6,"cgroups":["/a"]}}"#
)]
fn gate_record_names_are_stable(#[case] text: &str) {
    unchanged::<GateRecord>(text);
}

#[test]
fn batch_names_are_stable() {
    unchanged::<Batch>(r#"{"action":3,"blow":"Term","targets":[PROCESS],"authority":{"Person":1000},"cgroup":null}"#);
    assert_eq!(serde_json::to_string(&Authority::ROOT).unwrap(), r#"{"Session":0}"#);
}
