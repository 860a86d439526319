//! The pictures of a study, as SVG. A picture is drawn once and used twice: inlined in report.html,
//! whose style sheet colours it, and as a file of its own that carries the same rules. Engines keep
//! their colour over all pictures; light and dark follow the reader's system.
//!
//! The markup is maud's, as in the page. A chart library would bring fixed colours and pixel fonts;
//! what is left to do without one are scales and ticks (`svg.rs`).

mod bars;
mod heat;
mod labels;
mod lines;
mod radar;
mod select;
mod svg;

pub use select::all;
pub use svg::{Group, Picture, STYLE, colour as colour_class};
