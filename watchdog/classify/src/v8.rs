//! The limit of V8's heap, if an option or variable sets one.
//!
//! Past it node does not slow down: it says "heap out of memory" and aborts, however much memory the host has.
//!
//! Only node and deno are asked: bun takes the same options and has another engine, which does not know them.

use crate::Program;
use watchdog_types::{Bytes, Image};

/// The option, and the one in per cent of the memory that there is, which wins over it (both as of node 24; nodejs.org/api/cli.html).
const SIZE: &str = "--max-old-space-size";
const PERCENT: &str = "--max-old-space-size-percentage";

/// Deno's option for V8's options, with commas between them.
pub const DENO_FLAGS: &str = "--v8-flags=";

/// The name and the value of an option that states a limit.
pub fn option(word: &str) -> Option<(&'static str, &str)> {
    if let Some(flags) = word.strip_prefix(DENO_FLAGS) {
        return flags.split(',').rev().find_map(option);
    }
    let (name, value) = word.split_once('=')?;
    // V8 takes its options with underscores too.
    let name = name.replace('_', "-");
    [SIZE, PERCENT].into_iter().find(|known| *known == name).map(|known| (known, value))
}

/// The limit that node's or deno's own arguments state: those before the script, for what stands after it is the script's.
/// `memory` is what the process can have at most.
#[must_use]
pub fn stated_in_argv(image: &Image, memory: Bytes) -> Option<Bytes> {
    let program = Program::of(image);
    if !program.runs_on_v8() {
        return None;
    }
    // A program on the command line has node's options behind it too.
    let scripts = if program.script.is_some() { program.args.len() } else { 0 };
    let words = image.argv.len() - image.argv.iter().rev().take_while(|padding| padding.is_empty()).count();
    let own = image.argv.iter().take(words.saturating_sub(scripts)).skip(1).map(String::as_str);
    stated(own.take_while(|word| *word != "--"), memory)
}

/// The limit that a value of `NODE_OPTIONS` states.
#[must_use]
pub fn stated_in_node_options(value: &str, memory: Bytes) -> Option<Bytes> {
    let words = words(value);
    stated(words.iter().map(String::as_str), memory)
}

/// The limit that a value of `DENO_V8_FLAGS` states.
#[must_use]
pub fn stated_in_deno_flags(value: &str, memory: Bytes) -> Option<Bytes> {
    stated(value.split(','), memory)
}

/// V8's own limit on 64 bits: half of the memory, 256 MiB at least, and 2 GiB at most, or 4 GiB from 15 GiB of memory on. Before
/// node 12 it is 1,400 MiB everywhere. Measured on node 20 in cgroups of 250 MiB to 8 GiB and on a host of 24 GiB.
#[must_use]
pub fn default_heap(node_major: Option<u32>, memory: Bytes) -> Option<Bytes> {
    if node_major.is_some_and(|major| major < 12) {
        return Some(Bytes::from_mib(1_400));
    }
    let most = if memory >= Bytes::from_mib(15 * 1_024) { 4 * 1_024 } else { 2 * 1_024 };
    let half = Bytes(memory.0 / 2).clamp(Bytes::from_mib(256), Bytes::from_mib(most));
    (memory.0 > 0).then_some(half)
}

/// The last of several counts.
fn stated<'a>(options: impl Iterator<Item = &'a str>, memory: Bytes) -> Option<Bytes> {
    let (mut size, mut share) = (None, None);
    for (name, value) in options.filter_map(option) {
        if name == SIZE {
            size = value.parse().ok().filter(|mib| *mib > 0).map(Bytes::from_mib);
        } else {
            share = value.parse().ok().and_then(|percent| share_of(memory, percent));
        }
    }
    share.or(size)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a memory size, in whole MiB: fifteen digits are enough, and it is neither negative nor larger"
)]
fn share_of(memory: Bytes, percent: f64) -> Option<Bytes> {
    let allowed = percent > 0.0 && percent <= 100.0 && memory.0 > 0;
    allowed.then(|| Bytes::from_mib((memory.0 as f64 * percent / 100.0) as u64 >> 20))
}

/// The words of `NODE_OPTIONS`, as node takes them apart: spaces separate, double quotes hold together, and within them a
/// backslash takes the next character as it is.
fn words(value: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => quoted = !quoted,
            '\\' if quoted => word.extend(characters.next()),
            ' ' if !quoted => words.push(std::mem::take(&mut word)),
            other => word.push(other),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const GIB: u64 = 1_024;

    fn image(path: &str, argv: &[&str]) -> Image {
        Image::new(path, argv.iter().copied())
    }

    #[rstest]
    #[case::size("/usr/bin/node", &["node", "--max-old-space-size=200", "/x/a.js"], Some(200))]
    #[case::underscores("/usr/bin/node", &["node", "--max_old_space_size=200", "/x/a.js"], Some(200))]
    #[case::after_a_valued_option("/usr/bin/node", &["node", "-r", "/x/p.js", "--max-old-space-size=200", "/x/a.js"], Some(200))]
    #[case::the_last_counts("/usr/bin/node", &["node", "--max-old-space-size=1", "--max-old-space-size=200", "a.js"], Some(200))]
    #[case::no_script("/usr/bin/node", &["node", "--max-old-space-size=200", "-e", "x"], Some(200))]
    #[case::a_scripts_own_line("/x/cli.js", &["/usr/bin/node", "--max-old-space-size=200", "/x/cli.js", "-p"], Some(200))]
    #[case::share("/usr/bin/node", &["node", "--max-old-space-size-percentage=25", "a.js"], Some(2 * GIB))]
    #[case::share_wins("/usr/bin/node", &["node", "--max-old-space-size-percentage=25", "--max-old-space-size=9", "a.js"], Some(2 * GIB))]
    #[case::after_a_value_like_the_script("/usr/bin/node", &["node", "-r", "/x/a.js", "--max-old-space-size=200", "/x/a.js"], Some(200))]
    #[case::the_scripts_argument("/usr/bin/node", &["node", "/x/a.js", "--max-old-space-size=200"], None)]
    #[case::unlimited("/usr/bin/node", &["node", "--max-old-space-size=0", "/x/a.js"], None)]
    #[case::no_number("/usr/bin/node", &["node", "--max-old-space-size=lots", "/x/a.js"], None)]
    #[case::too_large_a_share("/usr/bin/node", &["node", "--max-old-space-size-percentage=101", "a.js"], None)]
    #[case::what_env_is_given("/usr/bin/env", &["env", "--max-old-space-size=200", "node", "/x/a.js"], None)]
    #[case::deno("/d/deno", &["deno", "run", "-A", "--v8-flags=--expose-gc,--max-old-space-size=200", "/x/a.ts"], Some(200))]
    #[case::denos_script("/d/deno", &["deno", "run", "/x/a.ts", "--v8-flags=--max-old-space-size=200"], None)]
    #[case::another_engine("/usr/bin/bun", &["bun", "--max-old-space-size=200", "/x/a.js"], None)]
    #[case::a_native_agent("/opt/claude/versions/2.1.170", &["claude", "--max-old-space-size=4096"], None)]
    fn limit_in_argv_precedes_script(#[case] path: &str, #[case] argv: &[&str], #[case] mib: Option<u64>) {
        let found = stated_in_argv(&image(path, argv), Bytes::from_mib(8 * GIB));
        assert_eq!(found, mib.map(Bytes::from_mib));
    }

    #[rstest]
    #[case::measured_250(Some(20), 250, Some(256))]
    #[case::measured_900(Some(20), 900, Some(450))]
    #[case::measured_3000(None, 3_000, Some(1_500))]
    #[case::measured_8000(Some(20), 8_000, Some(2_048))]
    #[case::measured_24_gib(Some(22), 24 * GIB, Some(4_096))]
    #[case::old(Some(10), 24 * GIB, Some(1_400))]
    #[case::unknown(Some(20), 0, None)]
    fn default_heap_follows_memory(#[case] major: Option<u32>, #[case] memory: u64, #[case] mib: Option<u64>) {
        assert_eq!(default_heap(major, Bytes::from_mib(memory)), mib.map(Bytes::from_mib));
    }

    #[test]
    fn deno_flags_are_separated_by_commas() {
        let stated = |value| stated_in_deno_flags(value, Bytes::from_mib(GIB));
        assert_eq!(stated("--expose-gc,--max-old-space-size=300"), Some(Bytes::from_mib(300)));
        assert_eq!(stated("--expose-gc"), None);
    }

    #[rstest]
    #[case("--max-old-space-size=300", Some(300))]
    #[case("  --no-warnings --max-old-space-size=300 ", Some(300))]
    #[case(r#"--require "/a b.js" "--max-old-space-size=300""#, Some(300))]
    #[case(r#"--require "/a\" --max-old-space-size=9 b.js""#, None)]
    #[case("--max-old-space-size 300", None)]
    #[case("", None)]
    fn node_options_follow_nodes_rules(#[case] value: &str, #[case] mib: Option<u64>) {
        assert_eq!(stated_in_node_options(value, Bytes::from_mib(GIB)), mib.map(Bytes::from_mib));
    }
}
