//! A report about one result or several, as one page of charts, as text, and as figures for programs.
//!
//! | module | what it is for |
//! |---|---|
//! | [`content`] | what the report says about the results |
//! | [`document`] | what a report says, before it is known where it is shown |
//! | [`charts`] | charts as data and as SVG |
//! | [`layout`] | which blocks stand side by side |
//! | [`html`] | one HTML page that needs nothing else |
//! | [`svg`] | one picture that stands alone |
//! | [`text`] | Markdown, and tables for a terminal |
//! | [`json`] | the figures for programs |

pub mod charts;
pub mod content;
pub mod document;
pub mod html;
pub mod json;
pub mod layout;
pub mod svg;
pub mod text;
