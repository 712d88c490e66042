//! Scripts that let shells ask `watchdogctl` for candidates.

use anyhow::{Context, Result};
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

const CLIENT: &str = "watchdogctl";

/// zsh runs the file as the body of a function at the first request, which must be answered too.
const ZSH_FIRST_REQUEST: &str = "\
if [[ ${funcstack[1]} == _watchdogctl ]]; then
    _clap_dynamic_completer_watchdogctl \"$@\"
fi
";

/// File names, as each shell looks for them, and scripts.
pub(crate) fn scripts() -> Result<Vec<(String, String)>> {
    Ok(vec![
        (CLIENT.to_owned() + ".bash", script(&Bash)?),
        (format!("_{CLIENT}"), script(&Zsh)? + ZSH_FIRST_REQUEST),
        (CLIENT.to_owned() + ".fish", script(&Fish)?),
    ])
}

fn script(shell: &dyn EnvCompleter) -> Result<String> {
    let mut script = Vec::new();
    shell
        .write_registration(watchdog_ctl::COMPLETION_VARIABLE, CLIENT, CLIENT, CLIENT, &mut script)
        .with_context(|| format!("writing the completions of {}", shell.name()))?;
    Ok(String::from_utf8_lossy(&script).trim_start().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_has_a_script() {
        let scripts = scripts().unwrap();
        let names: Vec<&str> = scripts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["watchdogctl.bash", "_watchdogctl", "watchdogctl.fish"]);
        assert!(scripts.iter().all(|(_, text)| text.contains("WATCHDOGCTL_COMPLETE=")), "{scripts:#?}");
        assert!(scripts[1].1.starts_with("#compdef watchdogctl\n"), "zsh reads this line first");
    }
}
