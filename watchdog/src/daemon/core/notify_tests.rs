//! The core has others told what happens.

use tokio::sync::oneshot;

use super::*;
use crate::config::Notify;
use crate::daemon::set_aside::StateNotes;
use crate::daemon::{historian, notify};

#[test]
fn who_is_to_be_told_is_told_and_a_new_configuration_says_who_that_is() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::default();
    let (history, _) =
        historian::start(historian::Origin::now(dir.path(), StateNotes::default()), chronicle::limits(&config))
            .unwrap();
    let mut core = Core::new(Arc::new(config), Arc::new(Metrics::new().unwrap()), history, Facts::default());
    core.notify_through(notify::start(Notify::default()).unwrap());

    let told = dir.path().join("told");
    let command = format!("cat > {0}.part && mv {0}.part {0}", told.display());
    let mut config = Config::default();
    config.actions.notify.command = Some(["/bin/sh", "-c", &command].map(str::to_owned).to_vec());
    // The directory is this user's alone.
    config.actions.notify.user = "root".to_owned();
    let (reply, _) = oneshot::channel();
    let request = Request::Reconfigure { config: Arc::new(config), text: String::new(), reply };
    core.answer(clock::now(), request, &mut Vec::new());

    let what = Happening::ActionsHeldBack { detail: "too many".to_owned() };
    let entry = JournalEntry { at: clock::now(), process: None, session: None, what };
    core.absorb(vec![Effect::Journal(entry)], None, &mut Vec::new());
    let end = std::time::Instant::now() + Duration::from_secs(8);
    while !told.exists() {
        assert!(std::time::Instant::now() < end, "nobody was told");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(std::fs::read_to_string(told).unwrap(), "{\"held_back\":\"too many\"}\n");
}
