//! In place of tls.rs in a build without the cargo feature `tls`: no connector can be created.

use std::io::{self, IoSlice};

use mio::net::TcpStream;

use crate::config::TlsSettings;
use crate::error::{Error, Feature};

/// No value of it exists.
#[derive(Clone, Debug)]
pub enum TlsConnector {}

/// No value of it exists.
#[derive(Debug)]
pub enum TlsStream {}

impl TlsConnector {
    pub fn new(_settings: &TlsSettings) -> Result<TlsConnector, Error> {
        Err(Error::missing_feature(Feature::Tls, "TLS"))
    }

    pub fn open(&self, _host: &str, _socket: TcpStream) -> Result<TlsStream, Error> {
        match *self {}
    }
}

impl TlsStream {
    pub fn tcp(&mut self) -> &mut TcpStream {
        match *self {}
    }

    pub fn shake_hands(&mut self) -> io::Result<bool> {
        match *self {}
    }

    pub fn read(&mut self, _out: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }

    pub fn read_into(&mut self, _out: &mut Vec<u8>) -> io::Result<usize> {
        match *self {}
    }

    pub fn write_vectored(&mut self, _parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match *self {}
    }

    pub fn flush(&mut self) -> io::Result<()> {
        match *self {}
    }

    pub fn has_unsent(&self) -> bool {
        match *self {}
    }
}

pub fn is_tls_fault(_error: &io::Error) -> bool {
    false
}
