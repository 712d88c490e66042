//! The loop: events in, requests out, one frame after each batch of events.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyModifiers, read};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use watchdog_api::client::ControlClient;

use crate::draw::{Palette, ScreenAreas, draw};
use crate::events::{AppEvent, Reports};
use crate::fetch::{perform, play, poll, read_recent};
use crate::model::{Playback, PollPlan, ScreenSource, TopMessage, TopModel, TopRequest};
use crate::screen::Screen;

/// A recording moves so often.
const TICK: Duration = Duration::from_millis(100);

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppEnd {
    Quit,
    /// By this signal.
    Signal(i32),
}

pub(crate) struct App {
    model: TopModel,
    palette: Palette,
    events: Receiver<AppEvent>,
    reports: Reports,
    feed: StateFeed,
}

/// What the state comes from.
enum StateFeed {
    Daemon { client: ControlClient, plans: Sender<PollPlan> },
    Recording { positions: Sender<Duration> },
}

impl App {
    /// Starts the threads that read the terminal and the signals.
    fn new(source: ScreenSource, palette: Palette, feed: impl FnOnce(&Reports) -> StateFeed) -> io::Result<Self> {
        let (sender, events) = channel();
        let terminal = sender.clone();
        // They end with the program.
        thread::spawn(move || while terminal.send(AppEvent::Terminal(read())).is_ok() {});
        let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGTSTP])?;
        let raised = sender.clone();
        thread::spawn(move || signals.forever().all(|signal| raised.send(AppEvent::Signal(signal)).is_ok()));
        let reports = Reports(sender);
        let zone = TimeZone::try_system().unwrap_or(TimeZone::UTC);
        let model = TopModel::new(source, Timestamp::now(), zone);
        let feed = feed(&reports);
        Ok(Self { model, palette, events, reports, feed })
    }

    pub(crate) fn live(client: ControlClient, palette: Palette) -> io::Result<Self> {
        Self::new(ScreenSource::Live, palette, |reports| {
            let (plans, receiver) = channel();
            let (poller, to) = (client.clone(), reports.clone());
            thread::spawn(move || poll(&poller, &receiver, &to));
            read_recent(&client, reports);
            StateFeed::Daemon { client, plans }
        })
    }

    pub(crate) fn replay(path: &Path, palette: Palette) -> io::Result<Self> {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Self::new(ScreenSource::Replay(Playback::new(name)), palette, |reports| {
            let (positions, receiver) = channel();
            let (path, to) = (path.to_owned(), reports.clone());
            thread::spawn(move || play(path, &receiver, &to));
            StateFeed::Recording { positions }
        })
    }

    pub(crate) fn run(&mut self, screen: &mut Screen) -> io::Result<AppEnd> {
        let mut ticked = Instant::now();
        loop {
            self.show(screen)?;
            let mut next = self.next(ticked + TICK);
            while let Some(event) = next {
                if let Some(end) = self.handle(event, screen)? {
                    return Ok(end);
                }
                next = self.events.try_recv().ok();
            }
            let elapsed = ticked.elapsed();
            if elapsed >= TICK {
                ticked = Instant::now();
                if self.is_playing()
                    && let Some(end) = self.update(TopMessage::Elapsed(elapsed), screen)?
                {
                    return Ok(end);
                }
            }
        }
    }

    const fn is_playing(&self) -> bool {
        matches!(&self.model.source, ScreenSource::Replay(playback) if playback.playing)
    }

    /// Waits for an event; while a recording plays not beyond the deadline.
    fn next(&self, deadline: Instant) -> Option<AppEvent> {
        if !self.is_playing() {
            return self.events.recv().ok();
        }
        self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
    }

    fn show(&mut self, screen: &mut Screen) -> io::Result<()> {
        let (rows, top) = ScreenAreas::of(&self.model, screen.area()?).table_rows();
        self.model.set_view(rows, top);
        let mut hidden = 0;
        screen.draw(|frame| hidden = draw(&self.model, self.palette, frame))?;
        self.model.limit_scroll(hidden);
        Ok(())
    }

    fn handle(&mut self, event: AppEvent, screen: &mut Screen) -> io::Result<Option<AppEnd>> {
        match event {
            AppEvent::Terminal(event) => match event? {
                Event::Key(key) if key.code == KeyCode::Char('l') && key.modifiers == KeyModifiers::CONTROL => {
                    screen.clear()?;
                    Ok(None)
                }
                Event::Key(key) => self.update(TopMessage::Key(key), screen),
                Event::Mouse(event) => self.update(TopMessage::Mouse(event), screen),
                Event::Resize(..) | Event::FocusGained | Event::FocusLost | Event::Paste(_) => Ok(None),
            },
            AppEvent::Signal(SIGTSTP) => {
                self.suspend(screen)?;
                Ok(None)
            }
            AppEvent::Signal(signal) => Ok(Some(AppEnd::Signal(signal))),
            AppEvent::Message(message) => self.update(message, screen),
        }
    }

    fn suspend(&mut self, screen: &mut Screen) -> io::Result<()> {
        if !screen.suspend()? {
            self.model.notice = Some("cannot suspend: no shell would continue this program".to_owned());
        }
        Ok(())
    }

    fn update(&mut self, message: TopMessage, screen: &mut Screen) -> io::Result<Option<AppEnd>> {
        for request in self.model.update(message, Timestamp::now()) {
            match (&self.feed, request) {
                (_, TopRequest::Quit) => return Ok(Some(AppEnd::Quit)),
                (_, TopRequest::Suspend) => self.suspend(screen)?,
                (_, TopRequest::CaptureMouse(on)) => screen.capture_mouse(on)?,
                // A thread that ended has reported why.
                (StateFeed::Daemon { plans, .. }, TopRequest::Poll(plan)) => drop(plans.send(plan)),
                (StateFeed::Recording { positions }, TopRequest::ReplayTo(position)) => drop(positions.send(position)),
                (StateFeed::Daemon { client, .. }, request) => perform(client, request, &self.reports),
                (StateFeed::Recording { .. }, _) => {}
            }
        }
        Ok(None)
    }
}
