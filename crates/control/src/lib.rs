#![no_std]
#![forbid(unsafe_code)]
//! placeholder
extern crate alloc;
pub mod units;
