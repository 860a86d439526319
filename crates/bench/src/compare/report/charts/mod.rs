//! The charts of a study, as SVG. A chart is drawn once and used twice: in report.html, whose style
//! sheet colours it, and in its own file with the same style. An engine has the same colour in all
//! charts. Light and dark mode follow the reader's system.
//!
//! The markup is made with maud, like the page. Rejected: a chart library, which has fixed colours
//! and pixel fonts and would replace only the scales and ticks (`svg.rs`).

mod bars;
mod heat;
mod labels;
mod lines;
mod radar;
mod recall;
mod select;
mod svg;

pub use select::all;
pub use svg::{Group, Picture, STYLE, colour as colour_class};
