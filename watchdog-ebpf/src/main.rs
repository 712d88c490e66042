//! The kernel half of agent-watchdog: it marks the children of a tracked process inside the fork, and reports what
//! happens to tracked processes.
//!
//! Read [`maps`] for what is remembered, [`lifecycle`] for the heart of it, and [`task`] for how one object reads the
//! structures of kernels that lay them out differently.
//!
//! All programs are BTF tracepoints (`tp_btf`), iterators, or (only in [`gate`]) LSM hooks: they take pointers to kernel structures whose types the
//! verifier knows. Where a tracepoint's arguments differ between kernels there is a program for each form, and userspace
//! loads the one whose arity is in the kernel's BTF.
#![no_std]
// The kernel counts across CPUs with an instruction for which there is no word in stable Rust: see `atomic`.
#![feature(asm_experimental_arch)]
#![no_main]

mod atomic;
mod death;
mod emit;
mod gate;
mod iter;
mod lifecycle;
mod maps;
mod memory;
mod scratch;
mod task;
mod users;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // Nothing here can panic; should that change, the verifier refuses the endless loop.
    loop {}
}

/// Helpers such as `bpf_probe_read_kernel` are only for programs under a licence compatible with the GPL.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
