use proptest::prelude::*;

use super::*;

/// Writes BTF as the kernel's build does.
#[derive(Default)]
struct Builder {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

impl Builder {
    fn new() -> Self {
        Self { strings: vec![0], ..Self::default() }
    }

    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(name.as_bytes());
        self.strings.push(0);
        at
    }

    fn add(&mut self, kind: u32, name: &str, len: usize, size_or_type: u32, rest: &[u32]) -> u32 {
        let name = self.name(name);
        for word in [name, kind << 24 | len as u32, size_or_type].iter().chain(rest) {
            self.types.extend(word.to_ne_bytes());
        }
        self.count += 1;
        self.count
    }

    /// Members are (name, type, offset in bytes).
    fn structure(&mut self, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        let rest: Vec<u32> =
            members.iter().flat_map(|&(member, kind, offset)| [self.name(member), kind, offset * 8]).collect();
        self.add(kind::STRUCT, name, members.len(), size, &rest)
    }

    fn int(&mut self) -> u32 {
        self.add(1, "int", 0, 4, &[32])
    }

    fn bytes(&self) -> Vec<u8> {
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        for word in [24, 0, types, types, strings] {
            bytes.extend(u32::to_ne_bytes(word));
        }
        [bytes, self.types.clone(), self.strings.clone()].concat()
    }

    fn parse(&self) -> Btf {
        Btf::parse(&self.bytes()).expect("valid BTF")
    }
}

fn offset(btf: &Btf, structure: &str, member: &str) -> Option<u32> {
    btf.member(btf.structure(structure).ok()?, member).ok().map(|member| member.offset)
}

#[test]
fn nested_offsets_are_from_outer_start() {
    let mut btf = Builder::new();
    let int = btf.int();
    let inner = btf.structure("", 8, &[("a", int, 0), ("b", int, 4)]);
    let middle = btf.structure("", 24, &[("c", int, 0), ("", inner, 16)]);
    btf.structure("mm_struct", 64, &[("first", int, 0), ("", middle, 32)]);
    let btf = btf.parse();
    assert_eq!(offset(&btf, "mm_struct", "first"), Some(0));
    assert_eq!(offset(&btf, "mm_struct", "c"), Some(32));
    assert_eq!(offset(&btf, "mm_struct", "b"), Some(52));
    assert_eq!(offset(&btf, "mm_struct", "d"), None);
}

#[test]
fn missing_type_and_member_named() {
    let mut btf = Builder::new();
    btf.structure("cred", 8, &[]);
    let btf = btf.parse();
    assert_eq!(btf.structure("task_struct").unwrap_err().to_string(), "the kernel has no type `struct task_struct`");
    let cred = btf.structure("cred").expect("present");
    assert_eq!(btf.member(cred, "uid").unwrap_err().to_string(), "the kernel's `cred` has no member `uid`");
}

#[test]
fn arity_excludes_own_parameter() {
    let mut btf = Builder::new();
    let int = btf.int();
    let function = btf.add(kind::FUNC_PROTO, "", 3, 0, &[0, 0, 0, int, 0, int]);
    let pointer = btf.add(kind::PTR, "", 0, function, &[]);
    btf.add(kind::TYPEDEF, "btf_trace_mark_victim", 0, pointer, &[]);
    btf.add(kind::TYPEDEF, "btf_trace_odd", 0, int, &[]);
    let btf = btf.parse();
    assert_eq!(btf.tracepoint_arity("mark_victim"), Some(2));
    assert_eq!(btf.tracepoint_arity("odd"), None);
    assert_eq!(btf.tracepoint_arity("none"), None);
}

#[test]
fn array_elements_found_behind_typedefs() {
    let mut btf = Builder::new();
    let int = btf.int();
    let counter = btf.structure("percpu_counter", 40, &[("lock", int, 0), ("count", int, 8)]);
    let alias = btf.add(kind::TYPEDEF, "alias", 0, counter, &[]);
    let array = btf.add(kind::ARRAY, "", 0, 0, &[alias, int, 4]);
    btf.structure("mm_struct", 200, &[("rss_stat", array, 16)]);
    let btf = btf.parse();
    let member = btf.member(btf.structure("mm_struct").expect("present"), "rss_stat").expect("present");
    assert_eq!(btf.array_element(member.type_id), Some((TypeId(counter), 40)));
    assert_eq!(btf.array_element(TypeId(int)), None);
}

#[test]
fn type_loops_terminate() {
    let mut btf = Builder::new();
    btf.add(kind::TYPEDEF, "btf_trace_loop", 0, 1, &[]);
    btf.structure("loop", 8, &[("", 2, 0)]);
    let btf = btf.parse();
    assert_eq!(btf.tracepoint_arity("loop"), None);
    assert_eq!(offset(&btf, "loop", "x"), None);
}

#[test]
fn running_kernel_layout_is_consistent() {
    let btf = Btf::of_running_kernel().expect("a kernel with BTF");
    let layout = crate::layout::Layout::of(&btf).expect("all members");
    // The two ids are neighbours in every kernel so far.
    assert_eq!(layout.offsets.task_tgid, layout.offsets.task_pid + 4);
    assert!(layout.offsets.mm_arg_end > layout.offsets.mm_arg_start);
    assert!(layout.offsets.mm_rss_stride >= 8);
    assert!(layout.variants.exit.is_some() && layout.variants.victim.is_some());
    assert_eq!(btf.tracepoint_arity("sched_process_fork"), Some(2));
}

proptest! {
    #[test]
    fn damaged_types_never_panic(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut whole = Builder::new();
        let int = whole.int();
        let inner = whole.structure("", 8, &[("b", int, 4)]);
        whole.structure("s", 64, &[("a", int, 0), ("", inner, 32)]);
        let function = whole.add(kind::FUNC_PROTO, "", 1, 0, &[0, 0]);
        let pointer = whole.add(kind::PTR, "", 0, function, &[]);
        whole.add(kind::TYPEDEF, "btf_trace_t", 0, pointer, &[]);
        let mut bytes = whole.bytes();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(btf) = Btf::parse(&bytes) {
            let found = offset(&btf, "s", "b");
            prop_assert!(found.is_none_or(|offset| offset < u32::MAX));
            let _ = btf.tracepoint_arity("t");
        } else {
            prop_assert!(Btf::parse(&whole.bytes()).is_ok());
        }
    }
}
