//! Services of this workspace as processes: started, spoken to over HTTP, killed or asked to stop.

#![allow(clippy::missing_panics_doc, clippy::must_use_candidate, reason = "a test may stop at anything")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};

/// A process that listens. Dropped, it is killed.
pub struct Service {
    child: Child,
    address: String,
}

impl Service {
    /// Starts a program that prints where it listens.
    pub fn start(program: &str, settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new(program);
        command
            .env("ADDRESS", "127.0.0.1:0")
            .envs(settings.iter().copied())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program is there");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it prints a line");
        let address = line.trim_end().strip_prefix("listening on ").expect("it listens").to_owned();
        Service { child, address }
    }

    /// Sends one request with a body of JSON; gives the status and the body of the response.
    pub fn ask(&self, method: &str, path: &str, header: &str, body: &str) -> (u16, String) {
        let mut connection = TcpStream::connect(&self.address).expect("it listens");
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{header}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        connection.write_all(request.as_bytes()).expect("it reads");
        let mut response = String::new();
        connection.read_to_string(&mut response).expect("it answers");
        let status = response.split(' ').nth(1).and_then(|status| status.parse().ok());
        let (_, body) = response.split_once("\r\n\r\n").expect("a response has a body");
        (status.expect("a response has a status"), body.to_owned())
    }

    /// `kill -9`.
    pub fn kill(self) {}

    /// SIGTERM: gives how the process ended.
    pub fn stop(mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status().expect("there is a `kill`");
        assert!(sent.success());
        self.child.wait().expect("it can be waited for")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
