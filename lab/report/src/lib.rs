#![forbid(unsafe_code)]
//! Reports of scenarios that were run, for people.
//!
//! | module | subject |
//! | --- | --- |
//! | [`table`](mod@table) | an answer as a text table |
//! | [`words`](mod@words) | an answer in sentences, for newcomers |
//! | [`pictures`](mod@pictures) | the charts that a scenario asks for |
//! | [`reproduce`](mod@reproduce) | every figure of the source papers beside ours |

pub mod pictures;
pub mod reproduce;
pub mod table;
mod variants;
pub mod words;

pub use table::table;
pub use words::words;
