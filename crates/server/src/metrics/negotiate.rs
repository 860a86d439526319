//! Negotiation of the form of the page, by the headers `Accept` and `Accept-Encoding` (RFC 9110,
//! 12.5).
//!
//! Both headers have ranges with a weight `q`. The weight of a form comes from the most specific
//! range that contains it, and the form with the highest weight is served. Without a header, or if
//! the headers accept no available form, the page is uncompressed, in the text format.

use super::page::Format;

/// The encoding of the bytes of the metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// The page is not compressed.
    Identity,
    /// The page is compressed with gzip.
    Gzip,
}

/// A form of the metrics page: its format and its encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// The format of the samples: that of Prometheus or OpenMetrics.
    pub format: Format,
    /// The encoding of the metrics page.
    pub coding: Coding,
}

impl Form {
    /// Returns the form that the values of these headers request. `None` stands for a missing
    /// header.
    pub fn asked(accept: Option<&str>, accept_encoding: Option<&str>) -> Self {
        let accept: Vec<Range<'_>> = ranges(accept).collect();
        // With equal weights, as for `*/*`, the text format is used, because all scrapers can read
        // it.
        let wants_open_metrics = weight(&accept, |range| matches_format(range, Format::OpenMetrics))
            > weight(&accept, |range| matches_format(range, Format::Text));
        let encoding: Vec<Range<'_>> = ranges(accept_encoding).collect();
        let of_coding = |names: &[&str]| {
            weight(&encoding, |range| match range.name {
                "*" => Some(0),
                name => names.iter().any(|known| known.eq_ignore_ascii_case(name)).then_some(1),
            })
        };
        // By RFC 9110, identity is acceptable unless it is refused. Its weight matters only if the
        // header states it.
        let gzip = of_coding(&["gzip", "x-gzip"]);
        let wants_gzip = gzip > 0 && gzip >= of_coding(&["identity"]);
        Self {
            format: if wants_open_metrics { Format::OpenMetrics } else { Format::Text },
            coding: if wants_gzip { Coding::Gzip } else { Coding::Identity },
        }
    }
}

/// One range of an `Accept` header, such as `text/*;version=0.0.4;q=0.5`.
struct Range<'h> {
    name: &'h str,
    version: Option<&'h str>,
    /// The weight `q` of the range, in thousandths.
    weight: u32,
}

fn ranges(header: Option<&str>) -> impl Iterator<Item = Range<'_>> {
    header.unwrap_or_default().split(',').map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let mut range = Range { name: parts.next().unwrap_or_default(), version: None, weight: 1000 };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim() {
                "q" | "Q" => range.weight = thousandths(value),
                "version" => range.version = Some(value),
                _ => {}
            }
        }
        range
    })
}

/// Parses a weight from 0 to 1 and returns it in thousandths; 0 if the text is not such a number.
fn thousandths(text: &str) -> u32 {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1.0).contains(number));
    number.map_or(0, |number| (number * 1000.0).round() as u32)
}

/// Returns the weight of the most specific range among those for which `specificity` returns a
/// number; 0 if there is none.
fn weight(ranges: &[Range<'_>], specificity: impl Fn(&Range<'_>) -> Option<u32>) -> u32 {
    let matching = ranges.iter().filter_map(|range| Some((specificity(range)?, range.weight)));
    matching.max().map_or(0, |(_, weight)| weight)
}

/// Returns the specificity of a range that contains `format`, from 0 (`*/*`) to 3 (a type with its
/// version). Returns `None` if the range does not contain the format.
fn matches_format(range: &Range<'_>, format: Format) -> Option<u32> {
    let (exact, group, version) = match format {
        Format::Text => ("text/plain", "text/*", "0.0.4"),
        Format::OpenMetrics => ("application/openmetrics-text", "application/*", "1.0.0"),
    };
    match range.name {
        "*/*" => Some(0),
        name if name.eq_ignore_ascii_case(group) => Some(1),
        name if name.eq_ignore_ascii_case(exact) => match range.version {
            None => Some(2),
            Some(asked) => (asked == version).then_some(3),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_the_one_wanted_most() {
        let check = |accept: Option<&str>, expected: Format| {
            assert_eq!(Form::asked(accept, None).format, expected, "{accept:?}");
        };
        check(None, Format::Text);
        check(Some(""), Format::Text);
        check(Some("*/*"), Format::Text);
        check(Some("text/plain"), Format::Text);
        check(Some("image/png"), Format::Text);
        check(Some("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"), Format::Text);
        check(Some("application/openmetrics-text"), Format::OpenMetrics);
        check(Some("Application/OpenMetrics-Text; version=\"1.0.0\"; charset=utf-8"), Format::OpenMetrics);
        check(Some("application/*, text/plain;q=0.5"), Format::OpenMetrics);
        check(Some("application/openmetrics-text;q=0, */*"), Format::Text);
        check(Some("application/openmetrics-text;q=0.4,text/plain;q=0.5"), Format::Text);
        check(Some("application/openmetrics-text;q=0.5 , text/plain;q=0.499"), Format::OpenMetrics);
        check(Some("application/openmetrics-text;q=nonsense"), Format::Text);
        check(Some("application/openmetrics-text;version=0.0.1"), Format::Text);
        // The headers of Prometheus 2 and 3.
        check(
            Some(
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            ),
            Format::OpenMetrics,
        );
        check(
            Some(
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                 application/openmetrics-text;version=0.0.1;q=0.5,\
                 text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            ),
            Format::OpenMetrics,
        );
        check(Some("text/plain;version=0.0.4;q=1,*/*;q=0.1"), Format::Text);
    }

    #[test]
    fn gzip_is_given_to_who_wants_it() {
        let check = |accept_encoding: Option<&str>, expected: Coding| {
            assert_eq!(Form::asked(None, accept_encoding).coding, expected, "{accept_encoding:?}");
        };
        check(None, Coding::Identity);
        check(Some(""), Coding::Identity);
        check(Some("gzip"), Coding::Gzip);
        check(Some("deflate, GZIP;q=0.5, br"), Coding::Gzip);
        check(Some("x-gzip"), Coding::Gzip);
        check(Some("*"), Coding::Gzip);
        check(Some("gzip;q=0, *"), Coding::Identity);
        check(Some("gzip; q=0.0"), Coding::Identity);
        check(Some("gzip;q=0.5, identity;q=0.8"), Coding::Identity);
        check(Some("deflate, br"), Coding::Identity);
    }
}
