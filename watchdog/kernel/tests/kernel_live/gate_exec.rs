//! Execs past the gate are denied, with and without LSM programs.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use super::denied_script::{DeniedScript, denied, status, unique};
use super::scene::KernelScene;

#[test]
fn only_gated_agent_starts() {
    let denied_agent = DeniedScript::named("denied");
    let mut scene = KernelScene::new();
    scene.tracer.set_denied(&denied_agent.names(), true).expect("deny");

    denied_agent.assert_does_not_start(&mut scene);

    // The root of a gated session and its child execute it.
    let gated = scene.agent_bound(&format!("{0}; exec {0}", denied_agent.path.display()));
    scene.wait_for_exit(gated.process);
    assert_eq!(denied_agent.starts(), 2);

    // A tracked process whose session is not gated is refused.
    scene.tracer.save_heartbeat().expect("heartbeat");
    let ungated = scene.agent(&format!("{}; exit 0", denied_agent.path.display()));
    scene.wait_for_exit(ungated.process);
    assert_eq!(denied_agent.starts(), 2);

    scene.tracer.set_denied(&denied_agent.names(), false).expect("allow");
    assert!(denied_agent.run().success());
    assert_eq!(denied_agent.starts(), 3);
    assert_eq!(scene.tracer.attached_refusals(), (false, false));
}

#[test]
fn similar_names_start() {
    let denied_agent = DeniedScript::named("denied");
    let mut scene = KernelScene::new();
    scene.tracer.set_denied(&denied_agent.names(), true).expect("deny");

    let inside = DeniedScript::at(&denied_agent.dir.path().join(format!("{}-files", denied_agent.name)).join("tool"));
    assert!(inside.run().success());
    let below = DeniedScript::at(&denied_agent.dir.path().join("x").join(&denied_agent.name).join("tool"));
    assert!(below.run().success());
    let longer = DeniedScript::at(&denied_agent.dir.path().join(format!("{}.js", denied_agent.name)));
    assert!(longer.run().success());
    // A link is resolved where LSM programs work; elsewhere a script is matched by its path only.
    let link = denied_agent.dir.path().join("another-name");
    std::os::unix::fs::symlink(&denied_agent.path, &link).expect("link");
    let starts = status(&mut Command::new(&link)).is_ok_and(|status| status.success());
    let refused = scene.tracer.features().lsm.is_ok();
    assert_eq!(starts, !refused);
    if refused {
        scene.wait_for("a refused link", denied);
        scene.events.clear();
    }
    assert!(scene.tracer.attached_refusals().1 == scene.tracer.features().lsm.is_ok());
    denied_agent.assert_does_not_start(&mut scene);
}

#[test]
fn name_behind_long_path_denied() {
    let dir = tempfile::tempdir().expect("tempdir");
    // The path is read in parts: names on either side of every boundary.
    let mut scene = KernelScene::new();
    for padding in [90, 120, 127, 128, 129, 200, 250] {
        let part = "p".repeat(padding);
        let program = DeniedScript::at(&dir.path().join(&part).join(unique("long")));
        scene.tracer.set_denied(&program.names(), true).expect("deny");
        program.assert_does_not_start(&mut scene);
        scene.events.clear();
    }
}

#[test]
fn long_file_name_denied_through_link() {
    let dir = tempfile::tempdir().expect("tempdir");
    let name = format!("{}-{}", unique("long"), "n".repeat(220));
    let file = dir.path().join(&name);
    std::fs::copy("/bin/true", &file).expect("copy");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&file, &link).expect("link");
    let mut scene = KernelScene::new();
    scene.tracer.set_denied(&[name.into_bytes()], true).expect("deny");

    match status(&mut Command::new(&link)) {
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}"),
        Ok(status) => assert_eq!(status.signal(), Some(libc::SIGKILL), "{status}"),
    }
}
