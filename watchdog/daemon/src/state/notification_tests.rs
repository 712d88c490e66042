//! The state sends notifications.

use tokio::sync::oneshot;

use super::*;
use crate::notify;
use watchdog_config::NotifyConfig;

#[test]
fn reload_changes_the_receiver() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = DaemonState::for_test(dir.path());
    state.notify_through(notify::start(NotifyConfig::default()).unwrap());

    let sent = dir.path().join("sent");
    let command = format!("cat > {0}.part && mv {0}.part {0}", sent.display());
    let mut config = Config::default();
    config.actions.notify.command = Some(["/bin/sh", "-c", &command].map(str::to_owned).to_vec());
    // Only this user can write to the directory.
    config.actions.notify.user = "root".to_owned();
    let (reply, _) = oneshot::channel();
    let request = EngineRequest::Reconfigure { config: Arc::new(config), text: String::new(), reply };
    state.answer(clock::now(), request, &mut Vec::new());

    let what = JournalEvent::ActionsHeldBack { detail: "too many".to_owned() };
    let entry = JournalEntry { at: clock::now(), process: None, session: None, what };
    state.handle_effects(&mut vec![Effect::Journal(entry)], None, &mut Vec::new());
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while !sent.exists() {
        assert!(std::time::Instant::now() < end, "no notification");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(std::fs::read_to_string(sent).unwrap(), "{\"held_back\":\"too many\"}\n");
}
