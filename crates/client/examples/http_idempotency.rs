//! An HTTP service that carries out each request once for its `Idempotency-Key`, however often it arrives:
//! `cargo run --example http_idempotency [STORE]`.

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use fencehold::{Fencehold, OperationError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[derive(Clone)]
struct Shop {
    fh: Fencehold,
    charges: Arc<AtomicU64>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let shop = Shop { fh: Fencehold::connect(&store).await?, charges: Arc::default() };

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let service = Router::new().route("/charges", post(charge)).with_state(shop.clone());
    let server = tokio::spawn(async move { axum::serve(listener, service).await });

    // The client did not hear the first answer, and asks again.
    let first = ask(address, "order-42", "990").await?;
    let again = ask(address, "order-42", "990").await?;
    println!("first: {first}\nagain: {again}");
    assert_eq!(first, "200 charge 1 of 990 cents");
    assert_eq!(again, first, "the stored answer");
    let other = ask(address, "order-42", "1").await?;
    println!("other: {other}");
    assert!(other.starts_with("422 "), "the same key for something else");
    assert_eq!(shop.charges.load(Ordering::SeqCst), 1);

    server.abort();
    shop.fh.close().await;
    Ok(())
}

async fn charge(State(shop): State<Shop>, headers: HeaderMap, cents: String) -> (StatusCode, String) {
    let Some(key) = headers.get("idempotency-key").and_then(|key| key.to_str().ok()) else {
        return (StatusCode::BAD_REQUEST, "an Idempotency-Key is needed".to_owned());
    };
    let charge = async |_job| {
        let nth = shop.charges.fetch_add(1, Ordering::SeqCst) + 1;
        Ok::<_, Infallible>(format!("charge {nth} of {cents} cents"))
    };
    match shop.fh.operations().once(key, &cents, charge).await {
        Ok(answer) => (StatusCode::OK, answer),
        Err(error) => (status_of(&error), error.to_string()),
    }
}

fn status_of(error: &OperationError<Infallible>) -> StatusCode {
    match error {
        OperationError::InProgress { .. } => StatusCode::CONFLICT,
        OperationError::Store(fencehold::Error::Conflict { .. }) => StatusCode::UNPROCESSABLE_ENTITY,
        OperationError::Store(error) if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// A client of few words: status and body.
async fn ask(address: std::net::SocketAddr, key: &str, body: &str) -> Result<String, Box<dyn Error>> {
    let mut connection = TcpStream::connect(address).await?;
    let length = body.len();
    let request = format!(
        "POST /charges HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nidempotency-key: {key}\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    connection.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    let status = answer.split(' ').nth(1).unwrap_or("no status");
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
    Ok(format!("{status} {body}"))
}
