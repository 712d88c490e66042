//! The ceiling of V8's heap, where somebody stated one.
//!
//! Past it node does not slow down: it says "heap out of memory" and aborts, however much memory the host has.
//!
//! Only node is asked: bun takes the same options and has another engine, which does not know them.

use super::classify::Program;
use super::id::Bytes;
use super::input::Image;

/// The option, and the one in per cent of the memory that there is, which wins over it (both as of node 24; nodejs.org/api/cli.html).
const SIZE: &str = "--max-old-space-size";
const PERCENT: &str = "--max-old-space-size-percentage";

/// The name and the value of an option that states a limit.
pub(super) fn option(word: &str) -> Option<(&'static str, &str)> {
    let (name, value) = word.split_once('=')?;
    // V8 takes its options with underscores too.
    let name = name.replace('_', "-");
    [SIZE, PERCENT].into_iter().find(|known| *known == name).map(|known| (known, value))
}

/// The limit that node's own arguments state: those before the script, for what stands after it is the script's.
/// `memory` is what the process can have at most.
#[must_use]
pub fn stated_in_argv(image: &Image, memory: Bytes) -> Option<Bytes> {
    let program = Program::of(image);
    if !program.runs_on_node() {
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

/// Of several the last one counts.
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
        Image { path: path.into(), argv: argv.iter().map(ToString::to_string).collect(), truncated: false }
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
    #[case::another_engine("/usr/bin/bun", &["bun", "--max-old-space-size=200", "/x/a.js"], None)]
    #[case::a_native_agent("/opt/claude/versions/2.1.170", &["claude", "--max-old-space-size=4096"], None)]
    fn node_states_its_limit_before_the_script(#[case] path: &str, #[case] argv: &[&str], #[case] mib: Option<u64>) {
        let found = stated_in_argv(&image(path, argv), Bytes::from_mib(8 * GIB));
        assert_eq!(found, mib.map(Bytes::from_mib));
    }

    #[rstest]
    #[case("--max-old-space-size=300", Some(300))]
    #[case("  --no-warnings --max-old-space-size=300 ", Some(300))]
    #[case(r#"--require "/a b.js" "--max-old-space-size=300""#, Some(300))]
    #[case(r#"--require "/a\" --max-old-space-size=9 b.js""#, None)]
    #[case("--max-old-space-size 300", None)]
    #[case("", None)]
    fn node_options_are_read_as_node_reads_them(#[case] value: &str, #[case] mib: Option<u64>) {
        assert_eq!(stated_in_node_options(value, Bytes::from_mib(GIB)), mib.map(Bytes::from_mib));
    }
}
