//! The systemd unit or the container of a process, by the path of its cgroup.

/// The innermost one: `nohang.service`, `docker-0a1b….scope`, or a container's id.
pub(crate) fn innermost(cgroup: &str) -> Option<&str> {
    let is_unit = |name: &&str| name.ends_with(".service") || name.ends_with(".scope") || is_container(name);
    cgroup.rsplit('/').find(is_unit)
}

/// What gives a process its settings: its container, or its service without the instance: `agent@.service`. A scope gives
/// none; its processes have those of what started them.
pub(crate) fn source(unit: &str) -> Option<String> {
    if let Some(scope) = unit.strip_suffix(".scope") {
        return scope.rsplit('-').next().is_some_and(is_container).then(|| unit.to_owned());
    }
    match unit.strip_suffix(".service").and_then(|service| service.split_once('@')) {
        Some((template, _)) => Some(format!("{template}@.service")),
        None => Some(unit.to_owned()),
    }
}

fn is_container(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::service("/system.slice/agents.service", Some("agents.service"), Some("agents.service"))]
    #[case::below("/system.slice/agents.service/one/two", Some("agents.service"), Some("agents.service"))]
    #[case::instance("/system.slice/a.slice/agent@3.service", Some("agent@3.service"), Some("agent@.service"))]
    #[case::of_user(
        "/user.slice/user-1.slice/user@1.service/app.slice/bot.service",
        Some("bot.service"),
        Some("bot.service")
    )]
    #[case::login("/user.slice/user-1.slice/session-2.scope", Some("session-2.scope"), None)]
    #[case::none("/", None, None)]
    fn cgroup_names_its_unit(#[case] cgroup: &str, #[case] unit: Option<&str>, #[case] of: Option<&str>) {
        assert_eq!((innermost(cgroup), innermost(cgroup).and_then(source).as_deref()), (unit, of));
    }

    #[test]
    fn container_names_its_unit() {
        let id = "0a1b".repeat(16);
        let scope = format!("docker-{id}.scope");
        assert_eq!(innermost(&format!("/system.slice/{scope}/init.d")), Some(scope.as_str()));
        assert_eq!((source(&scope), source(&id)), (Some(scope), Some(id.clone())));
        assert_eq!(innermost(&format!("/docker/{id}")), Some(id.as_str()));
    }
}
