//! The progress bar of a check, which is shown on terminals only.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The maximum number of times that the bar is drawn per second.
const DRAWS_PER_SECOND: u8 = 5;
const STYLE: &str = "{prefix} [{bar:30}] {percent:>3} %  {decimal_bytes} of {decimal_total_bytes}  {decimal_bytes_per_sec}  {eta} left";

/// Creates a progress bar called `name` for reading `len_bytes` bytes. The bar is hidden unless
/// standard error is a terminal.
pub(crate) fn bar(name: &str, len_bytes: u64) -> ProgressBar {
    let target = if stderr().is_terminal() {
        ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND)
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(len_bytes), target);
    let style = ProgressStyle::with_template(STYLE).expect("the template is a constant");
    bar.set_style(style.progress_chars("=> "));
    bar.set_prefix(name.to_owned());
    bar
}
