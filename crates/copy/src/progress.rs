//! The progress of a copy: a bar on a terminal, otherwise a line from time to time.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The maximum number of times that the bar is drawn per second.
const DRAWS_PER_SECOND: u8 = 4;
/// The time between two lines of progress, if standard error is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
const STYLE: &str = "{prefix} [{bar:30}] {percent:>3} %  {pos} of {len} keys  {per_sec}  {eta} left  {msg}";

/// The progress display of a copy, which shows one phase after the other.
pub struct Progress {
    bar: ProgressBar,
    /// The time of the next line; `None` on a terminal, and if no progress is shown.
    next_line: Option<Instant>,
}

impl Progress {
    /// Creates a progress display, which is hidden if `quiet` is set.
    pub fn new(quiet: Quiet) -> Self {
        let is_terminal = stderr().is_terminal();
        let target = if quiet.0 || !is_terminal {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND)
        };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let style = ProgressStyle::with_template(STYLE).expect("the template is a constant");
        bar.set_style(style.progress_chars("=> "));
        let next_line = (!quiet.0 && !is_terminal).then(|| Instant::now() + LINE_EVERY);
        Self { bar, next_line }
    }

    /// Begins to show the phase `name` of the copy, which handles `keys` keys.
    pub fn begin(&self, name: &'static str, keys: u64) {
        self.bar.reset();
        self.bar.set_prefix(name);
        self.bar.set_length(keys);
        self.bar.set_position(0);
    }

    /// Shows that `done` keys of the phase are handled and that `waiting` changed keys wait for a
    /// copy.
    pub fn update(&mut self, done: u64, waiting: usize) {
        // A scan may return a key twice, and keys are added meanwhile.
        self.bar.set_length(self.bar.length().unwrap_or(0).max(done));
        self.bar.set_position(done);
        self.bar.set_message(if waiting > 0 {
            format!("{waiting} changed keys wait")
        } else {
            String::new()
        });
        let Some(next) = self.next_line.filter(|next| *next <= Instant::now()) else { return };
        self.next_line = Some(next + LINE_EVERY);
        let keys = self.bar.length().unwrap_or(0);
        eprintln!(
            "saker-copy: {}: {done} of {keys} keys, {waiting} changed keys wait, {:.0} s left",
            self.bar.prefix(),
            self.bar.eta().as_secs_f64()
        );
    }

    /// Prints `line` above the progress bar.
    pub fn note(&self, line: &str) {
        self.bar.suspend(|| eprintln!("saker-copy: {line}"));
    }

    /// Removes the progress bar from the terminal.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The choice to hide the progress: true if nothing is shown.
#[derive(Clone, Copy, Debug)]
pub struct Quiet(pub bool);
