//! Who may connect where, and sockets that a service manager has bound.

use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::process::Signal;

use crate::stage::{PARDA, Stage, config, until, uri};
use parda_testkit::{Client, read};

const OFF: &str = "mode = \"off\"";

fn mode(stage: &Stage, name: &str) -> u32 {
    std::fs::symlink_metadata(stage.path(name)).unwrap().permissions().mode() & 0o7777
}

/// Whatever the umask: a socket is its server's alone, or whose the configuration says.
#[test]
fn sockets_have_the_mode_and_owner_that_are_configured() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    let text = config("host", OFF, &[("vm1", "data")]);
    for umask in ["000", "077"] {
        let shell = format!("umask {umask}; exec \"$0\" \"$@\"");
        let wrapper: &[&str] = &["sh", "-c", &shell];
        let agent = stage.agent_within(wrapper, "host", &text);
        assert_eq!((mode(&stage, "host"), mode(&stage, "host.status")), (0o600, 0o600));
        agent.stop();
        // Root can make it anybody's, others only their own.
        let root = rustix::process::geteuid().is_root();
        let me = rustix::process::geteuid().as_raw();
        let owner = if root { 64_055 } else { me };
        let listener = format!(
            "{text}[[listener]]\naddress = \"unix:host\"\nmode = \"0660\"\nowner = \"{owner}\"\n"
        );
        let agent = stage.agent_within(wrapper, "host", &listener);
        let meta = std::fs::symlink_metadata(stage.path("host")).unwrap();
        assert_eq!((mode(&stage, "host"), meta.uid()), (0o660, owner));
        stage.ok(&["nbdinfo", &uri("host", "vm1")]);
        agent.stop();
        assert!(!stage.path("host").exists());
    }
}

#[test]
fn an_owner_that_cannot_be_set_is_said_and_leaves_no_socket() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    let text = config("host", OFF, &[("vm1", "data")])
        + "[[listener]]\naddress = \"unix:host\"\nowner = \"64055\"\n";
    stage.write("host.toml", text);
    let root = rustix::process::geteuid().is_root();
    let powerless: &[&str] = if root { &["setpriv", "--bounding-set=-all"] } else { &[] };
    let agent = stage.restart(powerless, "host");
    agent.says("unix:host: cannot set the socket's owner");
    assert!(!stage.path("host").exists());
    agent.stop();
}

#[test]
fn plain_tcp_off_loopback_takes_the_word_plain_and_is_warned_of() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = config("host", OFF, &[("vm1", "data")])
        .replace("unix:host\"", &format!("tcp:0.0.0.0:{port}\""));
    stage.write("host.toml", &text);
    for line in [&["check", "host.toml"][..], &["serve", "-c", "host.toml"]] {
        let done = stage.parda(line);
        assert_eq!(done.status.code(), Some(2));
        let place = format!("host.toml:10:10: listen = \"tcp:0.0.0.0:{port}\": is not a loopback");
        assert!(done.err.contains(&place), "{}", done.err);
    }
    let text = format!("{text}[[listener]]\naddress = \"tcp:0.0.0.0:{port}\"\nplain = true\n");
    let agent = stage.agent("host", &text);
    agent.says("without TLS");
    assert!(stage.parda(&["check", "host.toml"]).out.contains("without TLS"));
    stage.ok(&["nbdinfo", &format!("nbd://127.0.0.1:{port}/vm1")]);
    agent.stop();
    let done = stage.lab(&["array", "--preset", "cx3-40-raid5-vms", "--listen", "tcp:0.0.0.0:0"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(done.err.contains("--listen tcp:0.0.0.0:0: not a loopback"), "{}", done.err);
}

/// The service manager holds the socket: whoever connects while no agent runs waits for the next.
#[test]
fn clients_wait_in_a_passed_socket_while_the_agent_restarts() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = config("host", OFF, &[("vm1", "data"), ("vm2", "data")])
        .replacen("unix:host\"", &format!("tcp:127.0.0.1:{port}\""), 1)
        .replace("path = \"data\"", "path = \"data\"\nread_only = true");
    stage.write("host.toml", text);
    let unix = stage.path("host");
    let (listen_unix, listen_tcp) =
        (format!("--listen={}", unix.display()), format!("--listen=127.0.0.1:{port}"));
    let mut manager = stage.start(
        "manager",
        &["systemd-socket-activate", &listen_unix, &listen_tcp, PARDA, "serve", "-c", "host.toml"],
    );
    // The socket's file is there before anybody listens.
    until("the manager listens", || manager.log().contains("as 4."));
    let inode = || std::fs::symlink_metadata(&unix).unwrap().ino();
    let bound = inode();
    // The manager starts the agent for the first client, in its own place.
    let mut client = Client::connect(&unix, "vm2");
    assert_eq!(client.call(read(0, 512), &[]), Ok(vec![0; 512]));
    stage.ok(&["nbdinfo", &format!("nbd://127.0.0.1:{port}/vm1")]);
    manager.signal(Signal::TERM);
    assert!(manager.wait().success(), "{}", manager.log());
    assert!(manager.log().contains("takes over the socket that was passed"), "{}", manager.log());
    assert_eq!(inode(), bound, "the socket's file is not the agent's to remove");
}

/// The same with a socket that outlives the agent, as under systemd.
#[test]
fn a_passed_socket_works_for_the_next_agent() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    stage.write("host.toml", config("host", OFF, &[("vm1", "data")]));
    let held = UnixListener::bind(stage.path("host")).unwrap();
    for round in 0..2 {
        // Nobody listens yet, and the client does not fail.
        let waiting = UnixStream::connect(stage.path("host")).unwrap();
        let mut agent = stage.activate(&format!("agent-{round}"), "host", &held);
        let mut client = Client::over(waiting, "vm1").unwrap();
        assert_eq!(client.call(read(0, 512), &[]), Ok(vec![0; 512]));
        agent.signal(Signal::TERM);
        assert!(agent.wait().success(), "{}", agent.log());
        assert!(stage.path("host").exists());
    }
}

#[test]
fn clients_of_a_passed_socket_without_disks_are_turned_away() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    let table = "[[listener]]\naddress = \"unix:host\"\nmode = \"0600\"\n";
    stage.write("host.toml", config("host", OFF, &[("vm1", "data")]) + table);
    let held = UnixListener::bind(stage.path("host")).unwrap();
    let mut agent = stage.activate("agent", "host", &held);
    let greets = || UnixStream::connect(stage.path("host")).unwrap().read(&mut [0]).unwrap() > 0;
    until("the disk is served", greets);
    let says = |what: &str| until(what, || agent.log().contains(what));
    says("mode, owner and group are those of the socket that was passed");
    stage.ok(&[PARDA, "disk", "remove", "vm1", "-c", "host.toml"]);
    until("they are turned away", || !greets());
    says("no disk listens there: clients are turned away");
    stage.ok(&[PARDA, "disk", "add", "vm1", "-c", "host.toml"]);
    assert!(greets());
    agent.signal(Signal::TERM);
    assert!(agent.wait().success());
}

/// As far as accepting goes it is ready, again and again.
#[test]
fn a_passed_socket_that_another_process_shuts_down_is_said() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    stage.write("host.toml", config("host", OFF, &[("vm1", "data")]));
    let held = UnixListener::bind(stage.path("host")).unwrap();
    let mut agent = stage.activate("agent", "host", &held);
    let client = Client::connect(&stage.path("host"), "vm1");
    rustix::net::shutdown(&held, rustix::net::Shutdown::Both).unwrap();
    until("the log says so", || agent.log().contains("cannot accept a connection"));
    drop(client);
    agent.signal(Signal::TERM);
    assert!(agent.wait().success());
}

#[test]
fn what_was_passed_wrongly_is_said() {
    let stage = Stage::new();
    stage.sparse("data", 1 << 20);
    stage.write("host.toml", config("host", OFF, &[("vm1", "data")]));
    let serve = |environment: &str| {
        let line = format!("exec env {environment} \"$0\" serve -c host.toml");
        stage.run(&["sh", "-c", &line, PARDA])
    };
    for (environment, says) in [
        ("LISTEN_PID=$$ LISTEN_FDS=many", "LISTEN_FDS=many: must be a number from 0 to 4096"),
        ("LISTEN_PID=$$ LISTEN_FDS=4294967295", "LISTEN_FDS=4294967295: must be"),
        ("LISTEN_PID=$$ LISTEN_FDS=1 3</dev/null", "the descriptor 3 that was passed is no"),
        ("LISTEN_PID=$$ LISTEN_FDS=1 3<&-", "the descriptor 3 that was passed is no"),
    ] {
        let done = serve(environment);
        assert_eq!(done.status.code(), Some(1), "{environment}: {}", done.err);
        assert!(done.err.contains(says), "{environment}: {}", done.err);
    }
    // What is meant for another process is none of ours.
    let mut agent = stage
        .start("host", &["env", "LISTEN_PID=1", "LISTEN_FDS=1", PARDA, "serve", "-c", "host.toml"]);
    until("the agent serves", || stage.path("host.status").exists());
    agent.signal(Signal::TERM);
    assert!(agent.wait().success());
}
