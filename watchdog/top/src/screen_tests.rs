use ratatui::widgets::Widget;
use watchdog_tests::Tmux;

use super::*;

#[test]
#[ignore = "a program that the other test runs in a terminal"]
fn panicking_program() {
    let mut screen = Screen::enter().unwrap();
    screen.draw(|frame| "drawn".render(frame.area(), frame.buffer_mut())).unwrap();
    let _ = crossterm::event::read();
    // On another thread, which would otherwise leave the screen alone.
    let _ = std::thread::spawn(|| panic!("the reason")).join();
    unreachable!("a panic ends the program");
}

#[test]
fn panic_restores_the_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let tmux = Tmux::new(directory.path(), 100, 24);
    let program = std::env::current_exe().unwrap();
    let name = "screen::tests::panicking_program";
    tmux.type_line(&format!(
        "{} --ignored --nocapture --exact {name}; echo status=$?; stty -a | tr ' ' '\\n' | grep -x -e 'echo;*' -e '-*icanon'",
        program.display()
    ));
    tmux.shows("drawn");
    assert!(tmux.has_alternate_screen());
    tmux.keys(&["x"]);
    let screen = tmux.until("the end", |screen| screen.contains("status=101") && screen.contains("\nicanon"));
    assert!(screen.contains("the reason") && screen.contains("\necho"), "{screen}");
    assert!(!tmux.has_alternate_screen() && !screen.contains("drawn"), "{screen}");
}
