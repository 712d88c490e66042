//! The cases of `tests/cases`, a test for each.

mod case_world;
mod host_steps;

use self::case_world::CaseWorld;
use watchdog_fixtures::cases::{case_text, run_case};
use watchdog_fixtures::for_each_case;

macro_rules! case {
    ($test:ident, $where:ident, $name:literal, $text:expr) => {
        #[test]
        fn $test() {
            if let Err(error) = run_case($name, &case_text($name, $text), CaseWorld::of) {
                panic!("{error}");
            }
        }
    };
}

for_each_case!(case);
