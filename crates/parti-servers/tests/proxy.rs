//! The proxy cuts, stalls, delays and heals.

mod clients;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use parti_servers::proxy::Proxy;

/// A server that sends back what it gets, and tells what it got.
fn echo() -> (String, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, got) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, sender) = (stream.unwrap(), sender.clone());
            std::thread::spawn(move || {
                let mut buffer = [0; 1024];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    let _ = sender.send(buffer[..count].to_vec());
                    if stream.write_all(&buffer[..count]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, got)
}

fn read(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

fn has_nothing_to_read(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let nothing = stream
        .peek(&mut [0])
        .is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    stream.set_nonblocking(false).unwrap();
    nothing
}

#[test]
fn it_forwards_both_ways_and_the_end_too() {
    let (target, _got) = echo();
    let proxy = Proxy::start(target);
    let mut stream = clients::connect(&proxy.address());
    let big = vec![7; 1_000_000];
    let mut writer = stream.try_clone().unwrap();
    let sent = big.clone();
    let writing = std::thread::spawn(move || writer.write_all(&sent).unwrap());
    assert!(read(&mut stream, big.len()) == big);
    writing.join().unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_cut_closes_and_refuses_until_it_is_healed() {
    let (target, _got) = echo();
    let mut proxy = Proxy::start(&target);
    let mut stream = clients::connect(&proxy.address());
    stream.write_all(b"a").unwrap();
    assert_eq!(read(&mut stream, 1), b"a");
    proxy.cut();
    assert!(!matches!(stream.read(&mut [0]), Ok(1..)));
    assert!(TcpStream::connect(proxy.address()).is_err());
    proxy.cut();
    proxy.heal();
    let mut stream = clients::connect(&proxy.address());
    stream.write_all(b"b").unwrap();
    assert_eq!(read(&mut stream, 1), b"b");
    let address = proxy.address();
    drop(proxy);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_stall_holds_old_and_new_connections_until_it_is_healed() {
    let (target, got) = echo();
    let mut proxy = Proxy::start(&target);
    let mut old = clients::connect(&proxy.address());
    old.write_all(b"a").unwrap();
    assert_eq!(read(&mut old, 1), b"a");
    assert_eq!(got.recv().unwrap(), b"a");
    proxy.stall();
    let mut new = clients::connect(&proxy.address());
    old.write_all(b"b").unwrap();
    new.write_all(b"c").unwrap();
    // What is held longest is what came first; neither may have arrived.
    assert!(got.try_recv().is_err());
    assert!(has_nothing_to_read(&old) && has_nothing_to_read(&new));
    proxy.heal();
    assert_eq!(read(&mut old, 1), b"b");
    assert_eq!(read(&mut new, 1), b"c");
}

#[test]
fn stalled_replies_let_requests_through() {
    let (target, got) = echo();
    let mut proxy = Proxy::start(&target);
    let mut stream = clients::connect(&proxy.address());
    proxy.stall_replies();
    stream.write_all(b"a").unwrap();
    assert_eq!(got.recv().unwrap(), b"a");
    assert!(has_nothing_to_read(&stream));
    proxy.cut();
    assert!(
        !matches!(stream.read(&mut [0]), Ok(1..)),
        "the reply is lost"
    );
}

#[test]
fn a_disconnect_closes_and_lets_new_ones_in() {
    let (target, _got) = echo();
    let proxy = Proxy::start(&target);
    let mut stream = clients::connect(&proxy.address());
    stream.write_all(b"a").unwrap();
    assert_eq!(read(&mut stream, 1), b"a");
    proxy.disconnect();
    assert!(!matches!(stream.read(&mut [0]), Ok(1..)));
    let mut stream = clients::connect(&proxy.address());
    stream.write_all(b"b").unwrap();
    assert_eq!(read(&mut stream, 1), b"b");
}

#[test]
fn a_delay_holds_each_way_for_at_least_so_long() {
    let (target, _got) = echo();
    let proxy = Proxy::start(&target);
    proxy.delay(Duration::from_millis(20));
    let begin = Instant::now();
    let mut stream = clients::connect(&proxy.address());
    stream.write_all(b"a").unwrap();
    assert_eq!(read(&mut stream, 1), b"a");
    // A lower bound: a slow machine cannot break it.
    assert!(begin.elapsed() >= Duration::from_millis(40));
}

#[test]
fn a_target_beyond_loopback_is_refused() {
    for target in ["192.0.2.1:80", "example.com:80", "127.0.0.1"] {
        assert!(Proxy::try_start(target).is_err(), "{target}");
    }
}

#[test]
fn a_target_that_is_down_closes_the_connection() {
    let proxy = Proxy::start("127.0.0.1:1");
    let mut stream = clients::connect(&proxy.address());
    assert!(!matches!(stream.read(&mut [0]), Ok(1..)));
}
