//! Servers that are no etcd, or a very slow one: each call ends, and says what is wrong.
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use parda_etcd::{Endpoint, EtcdAccess, EtcdClient, EtcdFault};

/// The time of a call to a server that never answers.
const BRIEF: Duration = Duration::from_millis(300);

/// Far more than a call takes on a busy machine, and far less than for ever.
const PATIENT: Duration = Duration::from_secs(60);

/// A server that does this with each connection, and a client of it.
fn server(serve: impl Fn(TcpStream) + Send + 'static) -> EtcdClient {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
    let endpoints = vec![Endpoint::parse(&url).unwrap()];
    EtcdClient::new(EtcdAccess { endpoints, tls: None, login: None }, 0)
}

fn fault(client: EtcdClient) -> EtcdFault {
    fault_within(PATIENT / 2, client)
}

fn fault_within(limit: Duration, mut client: EtcdClient) -> EtcdFault {
    let begun = Instant::now();
    let error = client.range(b"/", 9, limit).unwrap_err();
    assert!(begun.elapsed() < PATIENT, "{error} after {:?}", begun.elapsed());
    error.fault
}

/// A server that reads a request and answers so.
fn answers(head: &'static str, body: Vec<u8>) -> EtcdClient {
    server(move |mut socket| {
        let _ = socket.read(&mut [0; 4096]);
        let _ = socket.write_all(head.as_bytes());
        let _ = socket.write_all(&body);
    })
}

#[test]
fn a_server_that_is_silent_or_drips_is_given_up() {
    let silent = server(std::mem::forget);
    assert!(matches!(fault_within(BRIEF, silent), EtcdFault::NoAnswer));
    let dripping = server(|mut socket| {
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
        std::thread::spawn(move || {
            while socket.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
    });
    assert!(matches!(fault_within(BRIEF, dripping), EtcdFault::NoAnswer));
    let closed = server(drop);
    assert!(matches!(fault(closed), EtcdFault::Lost(_)));
    let nobody = Endpoint::parse("http://127.0.0.1:1").unwrap();
    let nobody = EtcdAccess { endpoints: vec![nobody], tls: None, login: None };
    assert!(matches!(fault(EtcdClient::new(nobody, 5)), EtcdFault::Connection(_)));
}

/// A server that ends the connection when it has read the request, and nobody at the endpoint after it, in either order.
#[test]
fn a_request_that_was_sent_may_be_done_whatever_fails_after_it() {
    let hangs_up = answers("", Vec::new()).endpoint();
    let drips = answers("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", b"{".to_vec()).endpoint();
    let nobody = "http://127.0.0.1:1".to_owned();
    let no_host = "http://nobody.invalid:1".to_owned();
    let cases = [
        (vec![&hangs_up], true),
        (vec![&drips], true),
        (vec![&hangs_up, &nobody], true),
        (vec![&nobody, &hangs_up], true),
        (vec![&nobody, &no_host], false),
    ];
    for (urls, may_be_done) in cases {
        let endpoints = urls.iter().map(|url| Endpoint::parse(url).unwrap()).collect();
        let mut client = EtcdClient::new(EtcdAccess { endpoints, tls: None, login: None }, 0);
        let error = client.range(b"/", 9, PATIENT / 2).unwrap_err();
        assert_eq!(error.may_be_done, may_be_done, "{urls:?}: {error}");
    }
}

#[test]
fn answers_that_are_none_of_etcd_are_refused() {
    let ok = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
    for body in ["<html>", "[]", "{\"kvs\":[{\"key\":\"*\"}]}", "{\"kvs\":7}", "{}", ""] {
        let fault = fault(answers(ok, body.into()));
        assert!(matches!(fault, EtcdFault::NotUnderstood(_)), "{body}: {fault}");
    }
    let page = "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n";
    let fault_of_page = fault(answers(page, b"404 page not found".to_vec()));
    assert!(matches!(fault_of_page, EtcdFault::NotUnderstood(text) if text.contains("404")));
    // More than any etcd would say is not taken in.
    let endless = answers(ok, vec![b' '; 20 << 20]);
    assert!(matches!(fault(endless), EtcdFault::Lost(_) | EtcdFault::NoAnswer));
    // A server must not send the password elsewhere.
    let away = "HTTP/1.1 307 Away\r\nLocation: http://127.0.0.1:1/\r\nConnection: close\r\n\r\n";
    let fault_of_away = fault(answers(away, Vec::new()));
    assert!(!matches!(&fault_of_away, EtcdFault::NoAnswer), "{fault_of_away}");
}
