//! Connections by the thousand, in plain bytes: what is measured is the server, not a client.

use fencehold_load::Failed;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Sees to it that so many connections can be open.
pub(super) fn allow_connections(many: usize) -> Result<(), Failed> {
    let wanted = many as u64 + 256;
    let mut now = getrlimit(Resource::Nofile);
    if now.current.is_some_and(|current| current < wanted) {
        now.current = Some(wanted);
        setrlimit(Resource::Nofile, now).map_err(|error| {
            format!("{wanted} open files are needed, and the system allows fewer ({error}): see `ulimit -n`")
        })?;
    }
    Ok(())
}

/// Sends a request, and does not wait for the answer.
pub(super) async fn post(address: &str, path: &str, body: &str) -> Result<TcpStream, Failed> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

/// Starts to read a stream of events; returns once the server has answered.
pub(super) async fn watch(address: &str, query: &str) -> Result<TcpStream, Failed> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /v1/events/stream?{query} HTTP/1.1\r\nhost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    if head.ends_with(b" 200") {
        Ok(stream)
    } else {
        Err(format!("a watcher was answered {}", String::from_utf8_lossy(&head)).into())
    }
}
