//! The patterns of one `[[profile.match]]`, and the file names that they imply.

/// The globs of one `[[profile.match]]`. A program must match every key that is given, and any one glob of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patterns {
    /// The executed path, or the script of an interpreter: /proc shows a running `#!` script as its interpreter.
    pub exe: Vec<String>,
    pub argv0: Vec<String>,
    /// An interpreter's script: the first argument that is not an option, or `-m MODULE` as written.
    pub script: Vec<String>,
    pub comm: Vec<String>,
    /// The argument right after the program; an empty string where there is none. One glob must match.
    pub first_arg: Vec<String>,
    /// The same argument; no glob may match.
    pub not_first_arg: Vec<String>,
}

/// The kernel cuts comm at this many bytes: a name this long may stand for a longer one.
const COMM_LEN: usize = 15;

impl Patterns {
    /// File names of which every matching program bears one; `None` when no key determines them.
    pub(super) fn names(&self) -> Option<Vec<Vec<u8>>> {
        let of_key = |globs: &[String], name: fn(&str) -> Option<Vec<u8>>| {
            if globs.is_empty() {
                return None;
            }
            globs.iter().flat_map(|glob| expanded(glob)).map(|glob| name(&glob)).collect::<Option<Vec<_>>>()
        };
        // The parent chooses argv[0] freely, so it implies nothing about the path.
        of_key(&self.exe, name_in_path)
            .or_else(|| of_key(&self.script, name_of_script))
            .or_else(|| of_key(&self.comm, name_in_comm))
    }
}

/// The last component, or the one before it, of every path that this glob matches.
fn name_in_path(glob: &str) -> Option<Vec<u8>> {
    let mut components = glob.rsplit('/');
    let last = components.next()?;
    if is_literal(last) {
        return Some(last.as_bytes().to_vec());
    }
    // A last component that can match a '/' would put further components after the one before it.
    let before = components.next()?;
    (is_literal(before) && stays_within_component(last)).then(|| before.as_bytes().to_vec())
}

/// Whether no wildcard of this last component can match a '/'.
fn stays_within_component(last: &str) -> bool {
    let plain_classes = ["[0-9]", "[a-z]", "[A-Z]"];
    let rest = plain_classes.iter().fold(last.to_owned(), |rest, class| rest.replace(class, ""));
    !rest.contains(['*', '?', '[', ']', '\\', '/'])
}

/// As [`name_in_path`]. A Python module keeps its `-m NAME`: the kernel reports its interpreter.
fn name_of_script(glob: &str) -> Option<Vec<u8>> {
    if glob.starts_with("-m ") && !glob.contains(['*', '?', '[', '{', '\\']) {
        Some(glob.as_bytes().to_vec())
    } else {
        name_in_path(glob)
    }
}

/// At exec, comm is the file's name, cut at [`COMM_LEN`].
fn name_in_comm(glob: &str) -> Option<Vec<u8>> {
    (is_literal(glob) && glob.len() < COMM_LEN).then(|| glob.as_bytes().to_vec())
}

/// Expands `{a,b}`. Nested braces stay, and are not literal.
pub(super) fn expanded(glob: &str) -> Vec<String> {
    let Some((before, rest)) = glob.split_once('{') else { return vec![glob.to_owned()] };
    let Some((choices, after)) = rest.split_once('}').filter(|(choices, _)| !choices.contains(['{', '\\', '['])) else {
        return vec![glob.to_owned()];
    };
    let ends = expanded(after);
    let choices = choices.split(',');
    choices.flat_map(|choice| ends.iter().map(move |end| format!("{before}{choice}{end}"))).collect()
}

pub(super) fn is_literal(component: &str) -> bool {
    !component.is_empty() && !component.contains(['*', '?', '[', ']', '{', '}', '\\', '!'])
}
