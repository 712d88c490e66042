//! Where a recording is.

use std::time::Duration;

/// Speeds, in seconds of the recording for a second.
const SPEEDS: [u32; 10] = [1, 2, 5, 10, 30, 60, 120, 300, 600, 3_600];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Playback {
    /// File name, for the header.
    pub(crate) name: String,
    pub(crate) position: Duration,
    /// `None` until the recording was read to its end.
    pub(crate) length: Option<Duration>,
    pub(crate) speed: u32,
    pub(crate) playing: bool,
}

impl Playback {
    pub(crate) const fn new(name: String) -> Self {
        Self { name, position: Duration::ZERO, length: None, speed: 1, playing: true }
    }

    /// Moves, but not beyond an end. Returns whether it moved.
    pub(crate) fn seek(&mut self, position: Duration) -> bool {
        let position = self.length.map_or(position, |length| position.min(length));
        let moved = position != self.position;
        self.position = position;
        moved
    }

    /// Moves by this time at its speed. Stops at the end.
    pub(crate) fn play(&mut self, elapsed: Duration) -> bool {
        let moved = self.playing && self.seek(self.position + elapsed * self.speed);
        if self.length.is_some_and(|length| self.position >= length) {
            self.playing = false;
        }
        moved
    }

    pub(crate) fn toggle(&mut self) -> bool {
        let at_end = self.length.is_some_and(|length| self.position >= length);
        self.playing = !self.playing;
        self.playing && at_end && self.seek(Duration::ZERO)
    }

    pub(crate) fn change_speed(&mut self, faster: bool) {
        let place = SPEEDS.iter().position(|speed| *speed == self.speed).unwrap_or_default();
        let place = if faster { place + 1 } else { place.saturating_sub(1) };
        self.speed = SPEEDS.get(place).copied().unwrap_or(self.speed);
    }
}
