//! Duplicates: the same server once more, for another agent of the same user. Every agent starts its own, so this is no
//! fault; but where there are many, one that all of them share would do.
//!
//! Also: language servers of one program in one directory, of which one would do. And many servers of one program that each
//! look after another directory (a language server or a build server for every worktree). They cannot be shared, and each is
//! as it should be; together they may be what fills the host.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::survey::{Helper, HelperRole, names};
use super::{Conclusions, Detector, Facts};
use crate::finding::{Detection, Key, Proposal};
use crate::ownership::Ownership;
use watchdog_api::evidence::{DuplicateEvidence, DuplicateRole, DuplicateServer};
use watchdog_api::{Evidence, FindingKind, ProcessKind, Severity};
use watchdog_types::{BootTime, Bytes, Directory, ProcessId, SessionId, Uid};

/// How many instances the evidence lists; the rest is counted.
const LISTED: usize = 50;

/// The groups with an open finding, and the process that each finding is named after.
#[derive(Debug, Default)]
pub(crate) struct Duplicates {
    open: BTreeMap<ServerGroup, ProcessId>,
    /// The servers that are counted in them.
    members: BTreeSet<ProcessId>,
    /// Language servers that were inspected for their directory.
    inspected: BTreeSet<ProcessId>,
}

/// Groups of one finding: equal servers of the same agents have one cause. The servers of each are sorted by age.
type Cluster<'h> = Vec<(ServerGroup, Vec<&'h Helper>)>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ServerGroup {
    uid: Uid,
    role: HelperRole,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// One could take the place of the others. With the digest of their arguments.
    Same(u64),
    /// Each serves one directory.
    PerDirectory,
}

impl Detector for Duplicates {
    fn exited(&mut self, process: ProcessId, _at: BootTime, _facts: &Facts<'_>, out: &mut Conclusions) {
        if self.members.remove(&process) {
            out.survey_soon();
        }
    }

    fn surveyed(&mut self, helpers: &[Helper], _pace: Duration, facts: &Facts<'_>, out: &mut Conclusions) {
        let mut groups: BTreeMap<ServerGroup, Vec<&Helper>> = BTreeMap::new();
        for helper in helpers {
            if let Some(group) = group_of(helper, facts) {
                groups.entry(group).or_default().push(helper);
            }
        }
        self.inspect_directories(&groups, facts, out);
        groups.retain(|group, same| are_too_many(group, same, facts));
        self.members = groups.values().flatten().map(|helper| helper.top).collect();
        let before = std::mem::take(&mut self.open);
        let mut named = BTreeSet::new();
        for cluster in clusters(groups) {
            let tops = cluster.iter().flat_map(|(_, same)| same).map(|helper| helper.top);
            // The finding that one of the groups has already, unless another cluster took it.
            let known = cluster.iter().filter_map(|(group, _)| before.get(group)).copied();
            let mut known: Vec<ProcessId> = known.collect();
            known.sort_unstable_by_key(|about| (about.start_time, about.pid));
            let Some(about) = known.into_iter().chain(tops).find(|about| !named.contains(about)) else { continue };
            named.insert(about);
            self.open.extend(cluster.iter().map(|(group, _)| (group.clone(), about)));
            out.report(observation(Key { kind: FindingKind::Duplicate, about }, &cluster, facts));
        }
        let over: BTreeSet<ProcessId> = before.into_values().filter(|about| !named.contains(about)).collect();
        for about in over {
            out.close(Key { kind: FindingKind::Duplicate, about }, "fewer of them");
        }
    }
}

impl Duplicates {
    fn inspect_directories(
        &mut self,
        groups: &BTreeMap<ServerGroup, Vec<&Helper>>,
        facts: &Facts<'_>,
        out: &mut Conclusions,
    ) {
        let several = groups.iter().filter(|(group, same)| group.compares_directories() && same.len() > 1);
        let tops: BTreeSet<ProcessId> = several.flat_map(|(_, same)| same).map(|helper| helper.top).collect();
        self.inspected.retain(|process| tops.contains(process));
        for process in tops {
            let known = facts.table.get(process).and_then(|top| top.inspection.as_deref());
            if self.inspected.insert(process) && known.is_none_or(|seen| seen.directory.is_none()) {
                out.inspect(process);
                out.survey_soon();
            }
        }
    }
}

impl ServerGroup {
    /// A build server runs in its program's directory.
    fn compares_directories(&self) -> bool {
        self.role.kind == ProcessKind::LanguageServer
    }
}

/// The directories of language servers.
#[derive(Debug, Default)]
struct Directories<'h> {
    /// Servers with the same arguments in the same directory.
    shared: BTreeMap<(Directory, u64), Vec<&'h Helper>>,
    different: BTreeSet<Directory>,
    unknown: usize,
}

impl<'h> Directories<'h> {
    fn of(same: &[&'h Helper], facts: &Facts<'_>) -> Self {
        let mut directories = Self::default();
        for helper in same {
            let seen = facts.table.get(helper.top).and_then(|top| top.inspection.as_deref());
            let Some(directory) = seen.and_then(|seen| seen.directory.as_deref().copied()) else {
                directories.unknown += 1;
                continue;
            };
            directories.different.insert(directory);
            if let Some(arguments) = helper.arguments {
                directories.shared.entry((directory, arguments)).or_default().push(helper);
            }
        }
        directories
    }

    /// One in place of all in each directory.
    fn saved(&self) -> Bytes {
        self.shared.values().map(|same| saved_by_sharing(same)).sum()
    }
}

/// Joins groups that could be shared by the same agents. The one with the oldest server comes first.
fn clusters(groups: BTreeMap<ServerGroup, Vec<&Helper>>) -> Vec<Cluster<'_>> {
    let mut shared: BTreeMap<(Uid, BTreeSet<ProcessId>), Cluster<'_>> = BTreeMap::new();
    let mut clusters = Vec::new();
    for (group, same) in groups {
        match group.what {
            What::Same(_) => shared.entry((group.uid, agents_of(&same))).or_default().push((group, same)),
            What::PerDirectory => clusters.push(vec![(group, same)]),
        }
    }
    clusters.extend(shared.into_values());
    let oldest = |(_, same): &(ServerGroup, Vec<&Helper>)| same.first().map(|it| (it.top.start_time, it.top.pid));
    clusters.iter_mut().for_each(|cluster| cluster.sort_by_key(oldest));
    clusters.sort_by_key(|cluster| cluster.first().and_then(oldest));
    clusters
}

/// The group in which a helper counts, if in any: one that has been there for a while, with an agent that lives.
fn group_of(helper: &Helper, facts: &Facts<'_>) -> Option<ServerGroup> {
    if facts.now.since(helper.started()) < facts.config.duplicates.after {
        return None;
    }
    let group = |what| ServerGroup { uid: helper.uid, role: helper.role.clone(), what };
    match helper.role.kind {
        // A kept one may be the shared one already.
        ProcessKind::McpServer if helper.ownership == Ownership::Owned && helper.agent.is_some() => {
            helper.arguments.map(|arguments| group(What::Same(arguments)))
        }
        ProcessKind::LanguageServer if helper.agent.is_some() => Some(group(What::PerDirectory)),
        ProcessKind::Tool | ProcessKind::Other => {
            let program = helper.build_server?.to_owned();
            let role = HelperRole { kind: helper.role.kind, program };
            Some(ServerGroup { role, ..group(What::PerDirectory) })
        }
        _ => None,
    }
}

fn are_too_many(group: &ServerGroup, same: &[&Helper], facts: &Facts<'_>) -> bool {
    let config = &facts.config.duplicates;
    match group.what {
        What::Same(_) => agents_of(same).len() >= config.min_agents,
        What::PerDirectory => {
            let in_one = |same: &Vec<&Helper>| agents_of(same).len() >= config.min_agents;
            let shared = || Directories::of(same, facts).shared.values().any(in_one);
            same.len() >= config.min_directories || group.compares_directories() && shared()
        }
    }
}

fn observation(key: Key, cluster: &Cluster<'_>, facts: &Facts<'_>) -> Detection {
    let mut all: Vec<&Helper> = cluster.iter().flat_map(|(_, same)| same).copied().collect();
    all.sort_by_key(|helper| (helper.top.start_time, helper.top.pid));
    let sessions: BTreeSet<SessionId> = all.iter().map(|helper| helper.session).collect();
    let directories = match cluster.as_slice() {
        [(group, same)] if group.compares_directories() => Some(Directories::of(same, facts)),
        _ => None,
    };
    let compared = directories.as_ref().filter(|seen| !seen.different.is_empty());
    let rows: Vec<DuplicateRole> = cluster.iter().map(|(group, same)| row(group, same, compared)).collect();
    let saved: Option<Vec<Bytes>> = rows.iter().map(|row| row.sharing_would_save_bytes).collect();
    let name = names(rows.iter().map(|row| row.name.as_str()));
    let listed = all.iter().take(LISTED).map(|helper| DuplicateServer {
        memory_bytes: helper.memory,
        pid: helper.top.pid,
        session: helper.session,
        start_time: helper.top.start_time,
    });
    let evidence = Evidence::Duplicate(Box::new(DuplicateEvidence {
        agents: agents_of(&all).len(),
        compared: match compared {
            Some(_) => Some("program, arguments and working directory".to_owned()),
            None => saved.is_some().then(|| "program and arguments, not the environment".to_owned()),
        },
        count: all.len(),
        directories: compared.map(|seen| seen.different.len()),
        directories_unknown: directories.as_ref().map(|seen| seen.unknown),
        memory_bytes: rows.iter().map(|row| row.memory_bytes).sum(),
        name,
        process_kind: cluster.first().map_or(ProcessKind::Other, |(group, _)| group.role.kind),
        processes: listed.collect(),
        servers: if rows.len() > 1 { rows } else { Vec::new() },
        sessions: sessions.iter().copied().collect(),
        sharing_would_save_bytes: saved.map(|saved| saved.into_iter().sum()),
    }));
    Detection {
        key,
        severity: Severity::Info,
        session: all.first().map(|oldest| oldest.session).filter(|_| sessions.len() == 1),
        subject: all.first().map_or(key.about, |oldest| oldest.top),
        members: all.iter().map(|helper| helper.top).collect(),
        uid: cluster.first().map_or(Uid::ROOT, |(group, _)| group.uid),
        cause: facts.now,
        summary: evidence.to_string(),
        evidence,
        proposal: Proposal::Report,
    }
}

/// The memory of all instances of a program, and the savings if one served all agents.
fn row(group: &ServerGroup, same: &[&Helper], directories: Option<&Directories<'_>>) -> DuplicateRole {
    let memory: Bytes = same.iter().map(|helper| helper.memory).sum();
    let saved = match group.what {
        What::Same(_) => Some(saved_by_sharing(same)),
        What::PerDirectory => directories.map(Directories::saved).filter(|saved| saved.0 > 0),
    };
    DuplicateRole {
        count: same.len(),
        memory_bytes: memory,
        name: group.role.program.clone(),
        sharing_would_save_bytes: saved,
    }
}

fn saved_by_sharing(same: &[&Helper]) -> Bytes {
    let all: Bytes = same.iter().map(|helper| helper.memory).sum();
    let largest = same.iter().map(|helper| helper.memory).max().unwrap_or_default();
    Bytes(all.0.saturating_sub(largest.0))
}

fn agents_of(helpers: &[&Helper]) -> BTreeSet<ProcessId> {
    helpers.iter().filter_map(|helper| helper.agent).collect()
}
