//! A client's connection to one broker, with at most one request under way.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::interop::refusals::{Ask, Outcome};

pub struct Lane {
    stream: TcpStream,
    port: u16,
}

impl Lane {
    pub fn connect(port: u16) -> Result<Lane> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("connecting")?;
        stream.set_nodelay(true)?;
        Ok(Lane { stream, port })
    }

    pub fn send(&mut self, ask: &Ask) -> Result<()> {
        let length = u32::try_from(ask.frame.len())?;
        let frame = [&length.to_be_bytes()[..], &ask.frame].concat();
        self.stream.write_all(&frame).context("sending a request")
    }

    /// Returns the answer, or nothing if there is none within `patience`.
    pub fn receive(&mut self, patience: Duration) -> Result<Option<Outcome>> {
        self.stream.set_read_timeout(Some(patience))?;
        let mut length = [0; 4];
        match self.stream.peek(&mut length) {
            Ok(0) => return self.closed().map(Some),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(None);
            }
            Err(_) => return self.closed().map(Some),
        }
        self.stream.set_read_timeout(Some(super::play::PATIENCE))?;
        self.stream
            .read_exact(&mut length)
            .context("a response was cut")?;
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(length))?];
        self.stream.read_exact(&mut frame).context("a response was cut")?;
        Ok(Some(Outcome::Answer(frame)))
    }

    /// The next request needs another connection.
    fn closed(&mut self) -> Result<Outcome> {
        *self = Lane::connect(self.port)?;
        Ok(Outcome::Closed)
    }
}
