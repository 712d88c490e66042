//! Documents of the API and terminals, for tests.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use super::Terminal;
use watchdog_api::{
    ActionState, Breaker, Capability, ConfigStatus, Counts, Fleet, FleetHost, FleetPool, Headroom, HistoryState, Host,
    HostState, Lease, Planned, Process, ProcessKind, ProcessState, ProfileBounds, Queue, Receipt, ReclaimRun,
    ReclaimRunState, ReclaimStatus, ReclaimTrigger, RefusalReason, RefusedLaunch, Session, SessionState, SetAside,
    Spared, Status, StoreState, Tracking, Tree, Waiter,
};

pub fn healthy_status() -> Status {
    Status {
        version: "0.1.0".into(),
        pid: 812,
        started_at: "2026-01-02T09:55:00.000Z".into(),
        degraded: false,
        tracking: Tracking { kernel_events: true, ..Tracking::default() },
        capabilities: vec![Capability {
            name: "btf".into(),
            on: true,
            why: "/sys/kernel/btf/vmlinux can be read".into(),
            cost: "none".into(),
            remedy: None,
        }],
        counts: Counts {
            sessions_running: 3,
            sessions_orphaned: 0,
            processes: 42,
            zombies: 1,
            findings_open: 0,
            memory_bytes: 3 << 30,
        },
        host: Host {
            memory_total_bytes: 16 << 30,
            memory_available_bytes: 5_583_457_485,
            swap_total_bytes: 4 << 30,
            swap_free_bytes: 3 << 30,
            shmem_bytes: 300 << 20,
            pressure_some_avg10: Some(0.12),
            pressure_full_avg10: Some(0.0),
        },
        breaker_open: false,
        lost_events: 0,
        reconciles: 1,
        history: Some(HistoryState { path: "/x/history.log".into(), bytes: 1 << 20, ..HistoryState::default() }),
        set_aside: Vec::new(),
        reclaim: Some(ReclaimStatus {
            mode: "pressure".into(),
            idle_sessions: 2,
            idle_resident_bytes: 700 << 20,
            swap_room_bytes: 2 << 30,
            problem: None,
        }),
        users: Vec::new(),
        config: Some(ConfigStatus { file: "/etc/agent-watchdog/config.toml".into(), ..ConfigStatus::default() }),
        pid_namespace: None,
        fleet: None,
    }
}

pub fn troubled_status() -> Status {
    let mut status = healthy_status();
    status.degraded = true;
    status.tracking.kernel_events = false;
    status.breaker_open = true;
    let problem = Some("no swap: idle sessions keep their memory".to_owned());
    status.reclaim = Some(ReclaimStatus { mode: "pressure".into(), problem, ..ReclaimStatus::default() });
    status.lost_events = 17;
    status.counts.sessions_orphaned = 1;
    status.counts.findings_open = 2;
    status.set_aside = vec![SetAside {
        path: "/run/x/gate.jsonl".into(),
        because: "it is a FIFO, not a regular file".into(),
        kept_as: Some("/run/x/gate.jsonl.set-aside-1".into()),
    }];
    status.host.swap_total_bytes = 0;
    status.host.pressure_some_avg10 = None;
    status.capabilities.push(Capability {
        name: "bpf".into(),
        on: false,
        why: "not permitted:\nnot root".into(),
        cost: "no kernel events".into(),
        remedy: Some("run as root".into()),
    });
    status
}

pub fn busy_queue() -> Queue {
    Queue {
        waiting: vec![Waiter {
            position: 1,
            pid: 5001,
            start_time: 9,
            user: "ada".into(),
            uid: 1000,
            profile: "claude-code".into(),
            priority: 5,
            queued_at: "2026-01-02T11:59:18Z".into(),
            waited_seconds: 42.0,
            reason: RefusalReason::Quota,
            detail: "1 of 1 sessions run".into(),
            memory_bytes: 700 << 20,
            away: true,
        }],
        leases: vec![Lease {
            session: Some(3),
            pid: 41230,
            start_time: 7,
            user: "ada".into(),
            uid: 1000,
            profile: "claude-code".into(),
            granted_at: "2026-01-02T11:00:00Z".into(),
            expected_bytes: 700 << 20,
            promised_bytes: 188 << 20,
            memory_bytes: 512 << 20,
        }],
        refused: vec![RefusedLaunch {
            at: "2026-01-02T11:58:00Z".into(),
            pid: 4999,
            user: "eve\x1b[2J".into(),
            uid: 1001,
            profile: "codex".into(),
            reason: RefusalReason::Rate,
            detail: "2 of 2 within 5m".into(),
        }],
        breaker: Breaker {
            open: true,
            since: Some("2026-01-02T11:59:00Z".into()),
            detail: "83 % of the memory is in use".into(),
        },
        room: Headroom {
            available_bytes: 3 << 30,
            swap_bytes: 0,
            reserve_bytes: 1 << 30,
            promised_bytes: 188 << 20,
            free_bytes: (2 << 30) - (188 << 20),
            reclaimable_bytes: 0,
        },
        profiles: vec![ProfileBounds {
            name: "claude-code".into(),
            running: 1,
            max_sessions: Some(1),
            expected_bytes: 700 << 20,
            learned_from: 12,
            max_memory_bytes: Some(2 << 30),
        }],
    }
}

pub fn process(pid: u32, parent: u32, kind: ProcessKind, argv: &[&str], mib: u64) -> Process {
    Process {
        pid,
        start_time: u64::from(pid),
        ppid: parent,
        parent_pid: parent,
        depth: 0,
        kind,
        comm: "comm".into(),
        name: String::new(),
        argv: argv.iter().map(ToString::to_string).collect(),
        state: ProcessState::Running,
        rss_bytes: mib << 20,
        anon_bytes: mib << 20,
        shmem_bytes: 0,
        swap_bytes: 0,
        peak_bytes: (mib + 8) << 20,
        oom_score_adj: None,
        kept_because: None,
    }
}

pub fn tree() -> Tree {
    use ProcessKind::{Agent, McpServer, Tool};
    let processes = vec![
        process(41230, 900, Agent, &["claude", "--resume"], 512),
        process(41231, 41230, McpServer, &["npm", "exec", "@modelcontextprotocol/server-memory"], 80),
        process(41240, 41231, McpServer, &["sh", "-c", "mcp-server-memory"], 1),
        process(41241, 41240, McpServer, &["node", "/x/server-memory/dist/index.js"], 66),
        process(41250, 41230, McpServer, &["uvx", "mcp-server-git"], 1100),
        process(41300, 41230, Tool, &["/bin/bash", "-c", "cargo test"], 3),
        process(41301, 41300, Tool, &["cargo", "test", "--workspace"], 9),
    ];
    let session = Session {
        id: 3,
        profile: "claude-code".into(),
        state: SessionState::Running,
        gated: false,
        user: "ada".into(),
        uid: 1000,
        started_at: "2026-01-02T09:55:00.000Z".into(),
        memory_bytes: 1700 << 20,
        peak_memory_bytes: 0,
        resident_bytes: 0,
        swap_bytes: 0,
        idle_since: None,
        process_count: 0,
        oom_score_adj: None,
        parent_session: None,
        zombies: 0,
        processes,
    };
    Tree { sessions: vec![session] }
}

/// Two orphans: one exited on SIGTERM, the other had to be killed.
pub fn receipt() -> Receipt {
    let receipt = json!({
        "id": 7, "action": "terminate", "state": "done", "by": "person", "asked_by_uid": 1000, "finding": 12,
        "finding_kind": "orphan", "session": 3,
        "reason": "2 helpers outlived claude-code (pid 41230)", "evidence": {"agent_pid": 41_230, "count": 2},
        "began_at": "2026-01-02T11:57:00.000Z", "ended_at": "2026-01-02T11:57:10.400Z",
        "memory_bytes": 88_080_384, "freed_bytes": 88_080_384,
        "available_before_bytes": 1_073_741_824_u64, "available_after_bytes": 1_161_822_208_u64,
        "targets": [
            {"pid": 41_241, "start_time": 9, "parent_pid": 41_240, "kind": "mcp-server", "name": "a\u{1b}[2J.js", "uid": 1000,
             "memory_bytes": 83_886_080, "died_at": "2026-01-02T11:57:10.300Z",
             "sent": [{"at": "2026-01-02T11:57:00.100Z", "what": "TERM", "answer": "sent"},
                      {"at": "2026-01-02T11:57:10.100Z", "what": "KILL", "answer": "sent"}]},
            {"pid": 41_240, "start_time": 8, "parent_pid": 41_230, "kind": "tool", "name": "sh", "uid": 1000,
             "memory_bytes": 4_194_304, "died_at": "2026-01-02T11:57:00.220Z",
             "sent": [{"at": "2026-01-02T11:57:00.100Z", "what": "TERM", "answer": "sent"}]}
        ],
        "spared": [], "result": "2 processes ended after 10s, 84 MiB freed"
    });
    #[expect(clippy::unwrap_used, reason = "clippy exempts tests, and not what they share")]
    serde_json::from_value(receipt).unwrap()
}

/// The same before the action, with one spared process.
pub fn planned() -> Planned {
    let mut action = Receipt { id: 0, state: ActionState::Planned, ended_at: None, ..receipt() };
    (action.freed_bytes, action.available_after_bytes, action.result) = (0, None, String::new());
    for target in &mut action.targets {
        target.sent.clear();
        target.died_at = None;
    }
    Planned {
        dry_run: true,
        memory_bytes: action.memory_bytes,
        actions: vec![action],
        spared: vec![Spared {
            pid: 41_250,
            start_time: 3,
            name: "tmux".into(),
            because: "kept: a tmux server".into(),
            not_permitted: false,
        }],
        kill_after_seconds: 10.0,
    }
}

/// A terminal without width and colour, whose clock stands at noon of 2 January 2026.
pub fn plain() -> Terminal {
    let now = Timestamp::from_second(1_767_355_200).unwrap_or_default();
    Terminal { width: None, colour: false, now, zone: || TimeZone::UTC }
}

pub fn narrow(width: usize) -> Terminal {
    Terminal { width: Some(width), ..plain() }
}

pub fn coloured() -> Terminal {
    Terminal { colour: true, ..plain() }
}

/// A page-out of 12 idle sessions that has ended.
pub fn reclaim_run() -> ReclaimRun {
    ReclaimRun {
        id: 7,
        trigger: ReclaimTrigger::Request,
        state: ReclaimRunState::Done,
        asked_by_uid: Some(1_000),
        session: None,
        began_at: "2026-01-02T03:04:05Z".into(),
        sessions: 12,
        processes: 30,
        resident_before_bytes: 2_200 << 20,
        resident_after_bytes: 254 << 20,
        paged_out_bytes: 1_946 << 20,
        swapped_bytes: 1_500 << 20,
        compressed_bytes: Some(614 << 20),
        seconds: 4.0,
        cpu_seconds: 2.0,
        note: None,
        exempt: Vec::new(),
    }
}

fn fleet_host(name: &str, state: HostState, last_seen_seconds: f64) -> FleetHost {
    FleetHost {
        host: name.into(),
        state,
        last_seen_seconds,
        agents: 40,
        waiting: 3,
        findings: 1,
        memory_available_bytes: 5 << 30,
        memory_total_bytes: 16 << 30,
        memory_free_bytes: 3 << 30,
        pressure_some_avg10: Some(0.25),
        breaker_open: false,
        labels: vec!["eu".into(), "gpu".into()],
        version: "0.1.0".into(),
    }
}

/// Three hosts: one is unreachable, the breaker of another is open.
pub fn fleet() -> Fleet {
    Fleet {
        store: StoreState::Up,
        address: "redis://10.0.0.5".into(),
        problem: None,
        lost_at: None,
        when_lost: "share".into(),
        this_host: "host-a".into(),
        hosts: vec![
            fleet_host("host-a", HostState::Up, 1.2),
            fleet_host("host-b\x1b[2J", HostState::Unreachable, 40.3),
            FleetHost { breaker_open: true, pressure_some_avg10: None, ..fleet_host("host-c", HostState::Up, 4.0) },
        ],
        pools: vec![
            FleetPool {
                name: "all".into(),
                limit: Some(100),
                held: 100,
                by_host: [("host-a".into(), 40), ("host-c".into(), 60)].into(),
            },
            FleetPool { name: "user:1000".into(), limit: None, held: 1, by_host: [("host-a".into(), 1)].into() },
        ],
    }
}
