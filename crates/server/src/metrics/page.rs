//! A page of samples, and its text in either of the two formats that scrapers request.
//!
//! Both formats have the same samples, but different lines before them. In these lines, OpenMetrics
//! names a counter without `_total`, has a type for texts, and states the unit. It also marks the
//! page's end. Sources: <https://prometheus.io/docs/instrumenting/exposition_formats/> (version
//! 0.0.4) and OpenMetrics 1.0, <https://prometheus.io/docs/specs/om/open_metrics_spec/>.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::catalog::{Kind, Metric};

/// The format of a metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The text format of Prometheus, version 0.0.4.
    Text,
    /// The format OpenMetrics, version 1.0.
    OpenMetrics,
}

impl Format {
    /// Both formats of the metrics page, in the order of the variants.
    pub const ALL: [Self; 2] = [Self::Text, Self::OpenMetrics];

    /// Returns the value of the HTTP header `Content-Type` for this format.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// A metric of the page, and the lines of its samples that were added so far.
struct Family {
    metric: &'static Metric,
    samples: String,
}

/// A page: all samples, grouped by metric, because the formats require the samples of a metric to
/// be adjacent.
#[derive(Default)]
pub struct Page(BTreeMap<&'static str, Family>);

impl Page {
    /// Adds a sample of a counter, a gauge or an info, or one percentile of a summary. `value` is
    /// the text of the sample's number.
    pub fn add(&mut self, metric: &'static Metric, labels: &[(&str, &str)], value: &str) {
        let suffix = match metric.kind {
            Kind::Counter => "_total",
            Kind::Info => "info",
            Kind::Gauge | Kind::Summary | Kind::Histogram => "",
        };
        self.sample(metric, suffix, labels, value);
    }

    /// Adds a histogram. `buckets` contains, in ascending order, each limit in seconds and the
    /// number of values up to it. The other arguments are the number of all values and their sum in
    /// seconds.
    pub fn add_histogram(
        &mut self,
        metric: &'static Metric,
        labels: &[(&str, &str)],
        buckets: &[(f64, u64)],
        (count, sum): (u64, f64),
    ) {
        let count = count.to_string();
        let limits = buckets.iter().map(|&(limit, below)| (float(limit), below.to_string()));
        for (limit, below) in limits.chain([("+Inf".to_owned(), count.clone())]) {
            self.sample(metric, "_bucket", &[labels, &[("le", &*limit)]].concat(), &below);
        }
        self.sample(metric, "_count", labels, &count);
        self.sample(metric, "_sum", labels, &sum.to_string());
    }

    fn sample(&mut self, metric: &'static Metric, suffix: &str, labels: &[(&str, &str)], value: &str) {
        let new = || Family { metric, samples: String::new() };
        let samples = &mut self.0.entry(metric.name).or_insert_with(new).samples;
        // Writing to a String cannot fail, here and below.
        let _ = write!(samples, "saker_{}{suffix}", metric.name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(samples, "{}{label}=\"{text}\"", if at == 0 { '{' } else { ',' });
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(samples, "{end} {value}");
    }

    /// Returns the text of the metrics page in `format`.
    pub fn text(&self, format: Format) -> String {
        let mut text = String::new();
        for Family { metric, samples } in self.0.values() {
            let (name, kind) = match (format, metric.kind) {
                (Format::Text, Kind::Info) => (metric.query_name(), Kind::Gauge.name()),
                (Format::Text, kind) => (metric.query_name(), kind.name()),
                (Format::OpenMetrics, kind) => {
                    (format!("saker_{}", metric.name).trim_end_matches('_').to_owned(), kind.name())
                }
            };
            let _ = writeln!(text, "# TYPE {name} {kind}");
            if let (Format::OpenMetrics, Some(unit)) = (format, metric.unit()) {
                let _ = writeln!(text, "# UNIT {name} {unit}");
            }
            let _ = write!(text, "# HELP {name} {}\n{samples}", metric.help);
        }
        match format {
            Format::Text => text,
            Format::OpenMetrics => text + "# EOF\n",
        }
    }
}

/// Formats a number as a label's value, in the same way for both formats, so that a series does not
/// depend on the format. OpenMetrics requires `1.0`; the text format accepts any form.
pub fn float(number: f64) -> String {
    // Rounding to twelve digits removes the rounding error of a division such as 99.9 / 100.
    let text = format!("{number:.12}");
    let text = text.trim_end_matches('0');
    if text.ends_with('.') { format!("{text}0") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::catalog::{INFO, MAX_FDS, REQUEST_SECONDS, THREAD_CPU};
    use super::*;

    #[test]
    fn both_formats_have_the_same_samples_below_their_own_headings() {
        let mut page = Page::default();
        page.add(&INFO, &[("os", "a\"b\\c\nd")], "1");
        page.add(&THREAD_CPU, &[("thread", "io-0")], "0.5");
        page.add(&MAX_FDS, &[], "7");
        page.add_histogram(&REQUEST_SECONDS, &[], &[(0.001, 2), (10.0, 3)], (4, 60.5));
        let help = |metric: &Metric| metric.help;
        let (info, cpu, fds, requests) =
            (help(&INFO), help(&THREAD_CPU), help(&MAX_FDS), help(&REQUEST_SECONDS));
        let samples = "\
saker_request_seconds_bucket{le=\"0.001\"} 2
saker_request_seconds_bucket{le=\"10.0\"} 3
saker_request_seconds_bucket{le=\"+Inf\"} 4
saker_request_seconds_count 4
saker_request_seconds_sum 60.5";
        assert_eq!(
            page.text(Format::OpenMetrics),
            format!(
                "\
# TYPE saker info
# HELP saker {info}
saker_info{{os=\"a\\\"b\\\\c\\nd\"}} 1
# TYPE saker_max_fds gauge
# HELP saker_max_fds {fds}
saker_max_fds 7
# TYPE saker_request_seconds histogram
# UNIT saker_request_seconds seconds
# HELP saker_request_seconds {requests}
{samples}
# TYPE saker_thread_cpu_seconds counter
# UNIT saker_thread_cpu_seconds seconds
# HELP saker_thread_cpu_seconds {cpu}
saker_thread_cpu_seconds_total{{thread=\"io-0\"}} 0.5
# EOF
"
            )
        );
        assert_eq!(
            page.text(Format::Text),
            format!(
                "\
# TYPE saker_info gauge
# HELP saker_info {info}
saker_info{{os=\"a\\\"b\\\\c\\nd\"}} 1
# TYPE saker_max_fds gauge
# HELP saker_max_fds {fds}
saker_max_fds 7
# TYPE saker_request_seconds histogram
# HELP saker_request_seconds {requests}
{samples}
# TYPE saker_thread_cpu_seconds_total counter
# HELP saker_thread_cpu_seconds_total {cpu}
saker_thread_cpu_seconds_total{{thread=\"io-0\"}} 0.5
"
            )
        );
    }

    #[test]
    fn numbers_in_labels_are_short_and_have_a_point() {
        let check = |number: f64, expected: &str| assert_eq!(float(number), expected);
        check(99.9 / 100.0, "0.999");
        check(99.999_9 / 100.0, "0.999999");
        check(0.000_01, "0.00001");
        check(1.0, "1.0");
        check(10.0, "10.0");
        check(0.0, "0.0");
    }
}
