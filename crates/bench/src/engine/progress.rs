//! The progress line of a run: rate, p50, p99 and time left. Nothing is shown if standard error is
//! no terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::shared::{Shared, Times};
use crate::spec::{Limit, RunSpec};

/// The maximum number of times per second that the progress line is drawn.
const DRAWS_PER_SECOND: u8 = 4;

/// The progress line of a run. It is hidden if standard error is no terminal or the run shows no
/// progress.
pub(super) struct Progress {
    bar: ProgressBar,
    limit: Limit,
}

impl Progress {
    pub(super) fn new(spec: &RunSpec) -> Self {
        let target = if spec.watch.progress {
            ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(1000), target);
        let style =
            ProgressStyle::with_template("{prefix} [{bar:20}] {msg}").expect("the template is a constant");
        bar.set_style(style.progress_chars("=> "));
        bar.set_prefix(spec.workload.name.clone());
        Self { bar, limit: spec.load.limit }
    }

    /// Draws the line with the current rate, latencies and time left.
    pub(super) fn show(&mut self, shared: &Shared, times: &Times) {
        if self.bar.is_hidden() {
            return;
        }
        let now_ns = shared.now_ns();
        let Some(since_ns) = now_ns.checked_sub(times.measured_ns) else {
            self.bar.set_message("warming up");
            return;
        };
        let since = Duration::from_nanos(since_ns).as_secs_f64();
        let (second, answered) = shared.progress();
        let (share, left) = match self.limit {
            Limit::Duration(duration) => {
                let whole = duration.as_secs_f64().max(1e-9);
                (since / whole, whole - since)
            }
            Limit::Requests(count) => {
                let share = answered as f64 / count.max(1) as f64;
                (share, if share > 0.0 { since / share - since } else { f64::INFINITY })
            }
        };
        self.bar.set_position((share * 1000.0).clamp(0.0, 1000.0) as u64);
        let left = if left.is_finite() { format!("{:.0} s left", left.max(0.0)) } else { String::new() };
        self.bar.set_message(match second {
            None => left,
            Some(second) => format!(
                "{:.0}/s  p50 {:.3} ms  p99 {:.3} ms  {left}",
                second.requests_per_second,
                second.p50_us / 1e3,
                second.p99_us / 1e3
            ),
        });
    }

    /// Removes the progress line from the terminal when the run has ended.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
