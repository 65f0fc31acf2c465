//! In place of login.rs in a build without the cargo feature `oauth`: no settings ask for a login.

use crate::config::ClientConfig;
use crate::error::Error;

/// No value of it exists.
#[derive(Debug)]
pub enum Login {}

impl Login {
    pub fn start(_config: &ClientConfig) -> Result<Option<Login>, Error> {
        Ok(None)
    }
}
