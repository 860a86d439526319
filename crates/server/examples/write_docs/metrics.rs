//! docs/metrics.md from the catalog of metrics.

use std::fmt::Write;

use server::metrics::catalog;

/// Builds docs/metrics.md: every metric by name, and the numbers of INFO without a metric.
pub fn page() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         All metrics of the metrics endpoint. [operations.md](operations.md#metrics) explains how to scrape them, and\n\
         has a dashboard and alerts. A counter grows until CONFIG RESETSTAT or a restart. A histogram has the series\n\
         `_bucket`, `_count` and `_sum`. `cargo xtask docs` writes this page from the catalog.\n\n\
         | metric | type | labels | meaning |\n|---|---|---|---|\n",
    );
    let mut metrics: Vec<&catalog::Metric> = catalog::all().collect();
    metrics.sort_by_key(|metric| metric.query_name());
    for metric in metrics {
        let extra = match metric.kind {
            catalog::Kind::Histogram => Some("le"),
            catalog::Kind::Summary => Some("quantile"),
            _ => None,
        };
        let labels: Vec<String> =
            metric.labels.iter().copied().chain(extra).map(|label| format!("`{label}`")).collect();
        let (name, kind) = (metric.query_name(), metric.kind.name());
        let _ = writeln!(page, "| `{name}` | {kind} | {} | {} |", labels.join(", "), metric.help);
    }
    page += "\n## Numbers of INFO without a metric\n\n| reason | fields |\n|---|---|\n";
    for (reason, fields) in catalog::LEFT_OUT {
        let fields: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
        let _ = writeln!(page, "| {reason} | {} |", fields.join(", "));
    }
    page
}
