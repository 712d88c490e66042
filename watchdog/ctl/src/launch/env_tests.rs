use super::*;
use proptest::prelude::*;
use rstest::rstest;

fn environment(entries: &[(&str, &str)]) -> Environment {
    entries.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

fn profile(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn user_value_overrides_profile() {
    let inherited = environment(&[("HOME", "/h"), ("UV_THREADPOOL_SIZE", "16")]);
    let wanted = profile(&[("UV_THREADPOOL_SIZE", "4"), ("MALLOC_ARENA_MAX", "2")]);
    let expected = environment(&[("HOME", "/h"), ("UV_THREADPOOL_SIZE", "16"), ("MALLOC_ARENA_MAX", "2")]);
    assert_eq!(merge(inherited, &wanted, &[]), expected);
}

#[test]
fn env_option_overrides_both() {
    let inherited = environment(&[("A", "user"), ("NODE_OPTIONS", "--inspect"), ("A", "twice")]);
    let wanted = profile(&[("NODE_OPTIONS", "--max-old-space-size=2048"), ("B", "profile")]);
    let own = environment(&[("A", "own"), ("B", "own"), ("NODE_OPTIONS", "--expose-gc")]);
    assert_eq!(merge(inherited, &wanted, &own), own);
}

#[test]
fn invalid_variables_are_dropped() {
    let wanted = profile(&[("", "x"), ("A=B", "x"), ("C", "a\0b"), ("D", "d")]);
    assert_eq!(merge(Vec::new(), &wanted, &[]), environment(&[("D", "d")]));
}

#[rstest]
#[case("", "--max-old-space-size=2048", "--max-old-space-size=2048")]
#[case("--inspect", "--max-old-space-size=2048", "--inspect --max-old-space-size=2048")]
#[case("--max-old-space-size=512", "--max-old-space-size=2048", "--max-old-space-size=512")]
#[case("--max_old_space_size=512", "--max-old-space-size=2048", "--max_old_space_size=512")]
#[case("--max-old-space-size=512", "--max_old_space_size=2048 --expose-gc", "--max-old-space-size=512 --expose-gc")]
#[case("--require ./a.js", "--expose-gc --require ./b.js", "--require ./a.js --expose-gc --require ./b.js")]
#[case("-r ./a.js", "--require=./a.js --require \"./b.js\"", "-r ./a.js --require \"./b.js\"")]
#[case("--import=a --loader=l", "--import=b --experimental-loader l", "--import=a --loader=l --import=b")]
#[case("--import \"a b\"", "--import=\"a b\" --import a", "--import \"a b\" --import a")]
#[case("--disable_warning=X", "--disable-warning=X --disable-warning=Y", "--disable_warning=X --disable-warning=Y")]
#[case(r#"--require "./a b.js""#, "--expose-gc", r#"--require "./a b.js" --expose-gc"#)]
#[case(r#"--title="say \"--expose-gc\" now""#, "--expose-gc", r#"--title="say \"--expose-gc\" now" --expose-gc"#)]
fn missing_node_options_are_added(#[case] user: &str, #[case] ours: &str, #[case] both: &str) {
    let merged = merge(environment(&[("NODE_OPTIONS", user)]), &profile(&[("NODE_OPTIONS", ours)]), &[]);
    assert_eq!(merged, environment(&[("NODE_OPTIONS", both)]));
}

#[rstest]
#[case("-Xmx2g", "-Xmx512m -Xss1m", "-Xmx2g -Xss1m")]
#[case("-XX:-UseG1GC", "-XX:+UseG1GC -XX:MaxRAMPercentage=20", "-XX:-UseG1GC -XX:MaxRAMPercentage=20")]
#[case("-XX:MaxRAMPercentage=50", "-XX:MaxRAMPercentage=20", "-XX:MaxRAMPercentage=50")]
#[case("--add-opens=a/b=ALL", "--add-opens a/b=ALL --add-opens=c/d=ALL", "--add-opens=a/b=ALL --add-opens=c/d=ALL")]
#[case("-javaagent:a.jar=x", "-javaagent:a.jar=y -javaagent:b.jar", "-javaagent:a.jar=x -javaagent:b.jar")]
#[case("-Da='x -Xmx1g'", "-Xmx512m", "-Da='x -Xmx1g' -Xmx512m")]
fn missing_java_options_are_added(#[case] user: &str, #[case] ours: &str, #[case] both: &str) {
    let merged = merge(environment(&[("JAVA_TOOL_OPTIONS", user)]), &profile(&[("JAVA_TOOL_OPTIONS", ours)]), &[]);
    assert_eq!(merged, environment(&[("JAVA_TOOL_OPTIONS", both)]));
}

#[test]
fn invalid_utf8_stays_unchanged() {
    let odd = OsStr::from_bytes(b"--title=\xff").to_owned();
    let inherited = vec![("NODE_OPTIONS".into(), odd.clone())];
    assert_eq!(merge(inherited.clone(), &profile(&[("NODE_OPTIONS", "--expose-gc")]), &[]), inherited);
}

#[rstest]
#[case("A=b", Some(("A", "b")))]
#[case("A=", Some(("A", "")))]
#[case("A=b=c", Some(("A", "b=c")))]
#[case("A", None)]
#[case("=b", None)]
#[case("", None)]
fn assignment_is_parsed(#[case] text: &str, #[case] parts: Option<(&str, &str)>) {
    assert_eq!(parse_assignment(text.into()).ok(), parts.map(|(name, value)| (name.into(), value.into())));
}

proptest! {
    #[test]
    fn user_options_stay_without_duplicates(
        user in "( |\"|\\\\|[-a-z_=]){0,40}",
        ours in "( |--[a-z]{1,3}(=[0-9]{1,2})?){0,8}",
    ) {
        for options in [RuntimeOptions::Node, RuntimeOptions::Java] {
            let once = options.join(&user, &ours);
            prop_assert!(once.starts_with(user.trim_end()));
            // An open quote swallows what is put behind it.
            if user.matches('"').count() == 0 {
                prop_assert_eq!(options.join(&once, &ours), once.clone());
                let given: Vec<String> = options.split(&once).iter().map(|option| options.identity(option)).collect();
                for option in options.split(&ours) {
                    prop_assert!(given.contains(&options.identity(option)));
                }
            }
        }
    }

    #[test]
    fn profile_keeps_user_variables(
        user in proptest::collection::btree_map("[A-D]", "[a-z ]{0,5}", 0..4),
        wanted in proptest::collection::btree_map("[A-F]", "[a-z ]{0,5}", 0..6),
    ) {
        let inherited: Environment = user.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let merged = merge(inherited.clone(), &wanted, &[]);
        prop_assert_eq!(&merged[..inherited.len()], &inherited[..]);
        for name in wanted.keys() {
            prop_assert_eq!(merged.iter().filter(|(known, _)| known == OsStr::new(name)).count(), 1);
        }
    }
}
