use super::super::history_writer::{self, RunContext};
use super::super::metrics::Metrics;
use super::super::set_aside::StateNotes;
use super::super::state::DaemonFacts;
use super::super::state_file::StoredFile;
use super::super::{history_filter, request};
use super::*;
use crate::worker::{CommandReceiver, command_channel};
use watchdog_config::Config;
use watchdog_engine::effect::{Effect, PersistCommand};
use watchdog_types::{Bytes, HostMemory, Scan};

/// An event loop with the test in the place of its workers.
struct Workbench {
    dir: tempfile::TempDir,
    event_loop: EventLoop,
    bpf: CommandReceiver<BpfTask>,
    durable: CommandReceiver<DurableUpdate>,
    ready: oneshot::Receiver<()>,
}

impl Workbench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = Arc::new(Config::default());
        let notes = StateNotes::default();
        let (history, _) =
            history_writer::start(RunContext::now(dir.path(), notes.clone()), history_filter::limits(&config)).unwrap();
        let state = DaemonState::new(config, Arc::new(Metrics::new().unwrap()), history, DaemonFacts::default());
        let (workers, queues) = Workers::for_test();
        let (durable, updates) = command_channel();
        let file = StoredFile::open(dir.path(), "boot", &notes).restore(|_| {});
        let (members, _) = MemberFile::open(dir.path(), "boot", &notes);
        let persisted = PersistedState { file, durable, members: Some(members), runtime_dir: dir.path().to_owned() };
        let (ready_tx, ready) = oneshot::channel();
        let ((_, events), (_, requests)) = (mpsc::channel(1), request::channel());
        let event_loop = EventLoop::new(state, workers, None, events, requests, ready_tx, persisted);
        Self { dir, event_loop, bpf: queues.bpf, durable: updates, ready }
    }

    fn handle(&mut self, wakeup: Wakeup) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.event_loop.handle(wakeup, &mut effects).unwrap();
        effects
    }

    fn feed_input(&mut self, input: Input) {
        self.handle(Wakeup::WorkerEvent(Some(WorkerEvent::Input(input))));
    }
}

fn reconfigure() -> (EngineRequest, oneshot::Receiver<()>) {
    let (reply, answer) = oneshot::channel();
    (EngineRequest::Reconfigure { config: Arc::default(), text: String::new(), reply }, answer)
}

#[tokio::test]
async fn abandoned_request_changes_nothing() {
    let mut bench = Workbench::new();
    let (request, answer) = reconfigure();
    drop(answer);
    bench.handle(Wakeup::Request(Some(request)));
    assert!(bench.bpf.try_command().is_none(), "its client has timed out");
    let (request, answer) = reconfigure();
    bench.handle(Wakeup::Request(Some(request)));
    assert!(matches!(bench.bpf.try_command(), Some(BpfTask::Configure(_))));
    answer.await.unwrap();
}

#[tokio::test]
async fn ready_waits_for_host_memory() {
    let mut bench = Workbench::new();
    for _ in 0..2 {
        bench.feed_input(Input::Scan(Scan { began: clock::now(), processes: Vec::new() }));
        bench.handle(Wakeup::WorkerEvent(Some(WorkerEvent::InheritedEvents { events: Vec::new(), unread: 0 })));
    }
    assert!(bench.ready.try_recv().is_err(), "requests are not answered yet");
    bench.feed_input(Input::Host(HostMemory { total: Bytes(1 << 30), ..HostMemory::default() }));
    bench.ready.try_recv().unwrap();
}

#[tokio::test]
async fn reserved_ids_are_kept_at_once() {
    let mut bench = Workbench::new();
    let reserved = LastIds::default().plus(1_000);
    bench.event_loop.dispatch(vec![Effect::Persist(PersistCommand::Ids(reserved))]).unwrap();
    assert!(matches!(bench.durable.try_command(), Some(DurableUpdate::Ids(ids)) if ids == reserved));
    // The thread that writes to the disk has not run yet.
    let notes = StateNotes::default();
    assert_eq!(id_store::last(bench.dir.path(), LastIds::default(), &notes), reserved);
}

#[tokio::test]
async fn clean_stop_writes_members() {
    let mut bench = Workbench::new();
    bench.event_loop.stage = TableStage::Ready;
    let members = bench.dir.path().join("members.json");
    bench.event_loop.save_state();
    assert!(members.exists());
}
