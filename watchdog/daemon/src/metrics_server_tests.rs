use super::*;
use crate::metrics::Scrape;
use crate::request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Serves metrics with a state that is ready or not; returns the address, and the tasks to abort.
async fn start(ready: bool) -> (SocketAddr, JoinHandle<()>) {
    let (engine, mut inbox) = request::channel();
    tokio::spawn(async move {
        while let Some(request) = inbox.recv().await {
            match request {
                EngineRequest::Scrape(reply) => drop(reply.send(Scrape::default())),
                EngineRequest::Ready(reply) => drop(reply.send(ready)),
                other => panic!("a scraper asked for {other:?}"),
            }
        }
    });
    let exposition = MetricsServer::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = exposition.address;
    (address, tokio::spawn(exposition.serve(engine, Arc::new(Metrics::new().unwrap()))))
}

async fn fetch(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn scrape_returns_text_format() {
    let (address, _server) = start(true).await;
    let answer = fetch(address, "/metrics").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
    assert!(answer.contains("\nagent_watchdog_lost_events_total 0\n"), "{answer}");
}

#[tokio::test]
async fn concurrent_scrapes_share_a_response() {
    let (engine, mut inbox) = request::channel();
    let asked = tokio::spawn(async move {
        let mut asked = 0;
        while let Some(EngineRequest::Scrape(reply)) = inbox.recv().await {
            asked += 1;
            drop(reply.send(Scrape::default()));
        }
        asked
    });
    let sources = ScrapeSources { engine, metrics: Arc::new(Metrics::new().unwrap()), last: Arc::default() };
    let [one, two, three, four] = [(); 4].map(|()| scrape(State(sources.clone())));
    let responses = <[Response; 4]>::from(tokio::join!(one, two, three, four));
    assert!(responses.iter().all(|response| response.status() == StatusCode::OK));
    scrape(State(sources)).await;
    // The first, one for those that waited for it, and the last: a response is never older than its request.
    assert_eq!(asked.await.unwrap(), 3);
}

#[tokio::test]
async fn health_reports_readiness() {
    let (address, _server) = start(true).await;
    assert!(fetch(address, "/healthz").await.starts_with("HTTP/1.1 200 "));
    let (address, _server) = start(false).await;
    assert!(fetch(address, "/healthz").await.starts_with("HTTP/1.1 503 "));
}

#[tokio::test]
async fn unknown_path_lists_known_ones() {
    let (address, _server) = start(true).await;
    let answer = fetch(address, "/").await;
    assert!(answer.starts_with("HTTP/1.1 404 ") && answer.contains("/healthz"), "{answer}");
}

#[tokio::test]
async fn used_address_error_names_options() {
    let (address, _server) = start(true).await;
    let message = MetricsServer::bind(address).await.unwrap_err().to_string();
    assert!(message.contains(&address.to_string()) && message.contains("--listen off"), "{message}");
}

#[tokio::test]
async fn idle_connections_give_way() {
    let (address, _server) = start(true).await;
    let mut idle = Vec::new();
    for number in 0..200 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        if number % 2 == 0 {
            stream.write_all(b"GET /metrics HT").await.unwrap();
        }
        idle.push(stream);
        if [15, 63, 199].contains(&number) {
            assert!(fetch(address, "/metrics").await.starts_with("HTTP/1.1 200 "), "beside {number}");
        }
    }
    assert_eq!(idle[0].read(&mut [0; 16]).await.unwrap_or(0), 0, "the longest idle was closed");
}
