use std::sync::mpsc as orders;

use super::super::core::Facts;
use super::super::historian::{self, Origin};
use super::super::metrics::Metrics;
use super::super::run_file::StoredFile;
use super::super::set_aside::StateNotes;
use super::super::{chronicle, request};
use super::*;
use crate::config::Config;
use crate::engine::id::Bytes;
use crate::engine::input::{HostMemory, Scan};

/// A loop whose hands are the test.
struct Workbench {
    dir: tempfile::TempDir,
    pump: Pump,
    tracer: orders::Receiver<Order>,
    lasting: orders::Receiver<Lasting>,
    ready: oneshot::Receiver<()>,
}

impl Workbench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = Arc::new(Config::default());
        let notes = StateNotes::default();
        let (history, _) =
            historian::start(Origin::now(dir.path(), notes.clone()), chronicle::limits(&config)).unwrap();
        let core = Core::new(config, Arc::new(Metrics::new().unwrap()), history, Facts::default());
        let (tracer, traced) = orders::channel();
        let hands = Hands {
            tracer,
            prober: orders::channel().0,
            inspector: orders::channel().0,
            warden: orders::channel().0,
            reaper: orders::channel().0,
        };
        let (lasting, kept) = orders::channel();
        let file = StoredFile::open(dir.path(), "boot", &notes).restore(|_| {});
        let (members, _) = MemberFile::open(dir.path(), "boot", &notes);
        let kept_files = Kept { file, lasting, members: Some(members), runtime_dir: dir.path().to_owned() };
        let (say_ready, ready) = oneshot::channel();
        let ((_, reports), (_, requests)) = (mpsc::channel(1), request::channel());
        let pump = Pump::new(core, hands, None, reports, requests, say_ready, kept_files);
        Self { dir, pump, tracer: traced, lasting: kept, ready }
    }

    fn take(&mut self, turn: Turn) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.pump.take(turn, &mut effects).unwrap();
        effects
    }

    fn learn(&mut self, input: Input) {
        self.take(Turn::Report(Some(Report::Input(input))));
    }
}

fn reconfigure() -> (Request, oneshot::Receiver<()>) {
    let (reply, answer) = oneshot::channel();
    (Request::Reconfigure { config: Arc::default(), text: String::new(), reply }, answer)
}

#[tokio::test]
async fn abandoned_request_changes_nothing() {
    let mut bench = Workbench::new();
    let (request, answer) = reconfigure();
    drop(answer);
    bench.take(Turn::Request(Some(request)));
    assert!(bench.tracer.try_recv().is_err(), "its client has timed out");
    let (request, answer) = reconfigure();
    bench.take(Turn::Request(Some(request)));
    assert!(matches!(bench.tracer.try_recv(), Ok(Order::Configure(_))));
    answer.await.unwrap();
}

#[tokio::test]
async fn ready_waits_for_host_memory() {
    let mut bench = Workbench::new();
    for _ in 0..2 {
        bench.learn(Input::Scan(Scan { began: clock::now(), processes: Vec::new() }));
        bench.take(Turn::Report(Some(Report::Left { events: Vec::new(), unread: 0 })));
    }
    assert!(bench.ready.try_recv().is_err(), "requests are not answered yet");
    bench.learn(Input::Host(HostMemory { total: Bytes(1 << 30), ..HostMemory::default() }));
    bench.ready.try_recv().unwrap();
}

#[tokio::test]
async fn reserved_ids_are_kept_at_once() {
    let mut bench = Workbench::new();
    let reserved = LastIds::default().plus(1_000);
    bench.pump.carry_out(vec![Effect::ReserveIds(reserved)]).unwrap();
    assert!(matches!(bench.lasting.try_recv(), Ok(Lasting::Ids(ids)) if ids == reserved));
    // The thread that writes to the disk has done nothing yet.
    let notes = StateNotes::default();
    assert_eq!(ids::last(bench.dir.path(), LastIds::default(), &notes), reserved);
}

#[tokio::test]
async fn clean_stop_writes_members() {
    let mut bench = Workbench::new();
    bench.pump.stage = Stage::Ready;
    let members = bench.dir.path().join("members.json");
    bench.pump.wind_up();
    assert!(members.exists());
}
