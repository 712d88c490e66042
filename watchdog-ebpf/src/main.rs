//! The kernel half of agent-watchdog: it marks the children of a tracked process inside the fork, and reports what
//! happens to tracked processes.
//!
//! - [`hooks`]: one file for each hook of the kernel, with the programs attached to it.
//! - [`maps`]: every map, with its size and why. [`tracking`], [`shares`], [`sessions`] and [`denial`] keep their rules.
//! - [`task`]: the only reader of kernel structures. One object reads kernels that lay them out differently.
//! - [`namespace`]: whose pids and clock they carry.
//! - [`emit`]: the only writer of the rings.
//!
//! All programs are BTF tracepoints (`tp_btf`), task iterators or LSM hooks: they take pointers to kernel structures whose
//! types the verifier knows. Where a tracepoint's arguments differ between kernels, each form has a program, and userspace
//! loads the one whose arity is in the kernel's BTF.
#![no_std]
// Atomic additions across CPUs need an instruction that stable Rust cannot express: see `atomic`.
#![feature(asm_experimental_arch)]
#![no_main]

mod atomic;
mod denial;
mod emit;
mod hooks;
mod maps;
mod name_hash;
mod namespace;
mod scratch;
mod sessions;
mod shares;
mod task;
mod tracking;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // No code here can panic; should that change, the verifier refuses the endless loop.
    loop {}
}

/// Helpers such as `bpf_probe_read_kernel` require a licence compatible with the GPL.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
