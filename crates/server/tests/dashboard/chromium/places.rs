//! Where the server is: gone and back again, and behind a proxy under a path.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use fencehold_test_servers::chromium::in_browser;
use serde_json::json;

use super::log_in;
use crate::clocked::ClockedServer;
use crate::security::fixture::{LIMIT, SecurityFixture, acquire, hear};

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn an_open_page_says_that_the_server_is_gone_and_comes_back_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("file:{}?create=true", folder.path().join("store").display());
    let address = format!("127.0.0.1:{}", free_port());
    let mut server = ClockedServer::start_at(&store, None, &address);
    let origin = server.url.clone();
    in_browser("server-gone", |browser| {
        browser.open(&format!("{origin}/leases"));
        browser.until("that it is live", || browser.has("#live[data-state=live]"));
        browser.script("window.isTheSamePage = true");
        server.kill();
        browser.reads("not connected");
        browser.picture("not-connected-light");
        server = ClockedServer::start_at(&store, None, &address);
        browser.until("that it is live again", || browser.has("#live[data-state=live]"));
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let body = acquire("after/the/restart", 1, 30_000).to_string();
        write!(
            stream,
            "POST /v1/leases/acquire HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let taken = hear(stream);
        assert_eq!(taken.status, 200, "{taken:?}");
        browser.reads("after/the/restart");
        assert_eq!(browser.script("return window.isTheSamePage"), json!(true));
        browser.was_clean(
            &origin,
            &["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET"],
        );
    });
}

/// nginx with the lines that docs/dashboard.md gives.
struct Nginx {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Nginx {
    fn start(upstream: std::net::SocketAddr) -> Nginx {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let path = folder.path().display();
        let guide = include_str!("../../../../../docs/dashboard.md");
        let (_, location) = guide.split_once("```nginx\n").unwrap();
        let location = location.split_once("```").unwrap().0;
        let location = location.replace("127.0.0.1:7117", &upstream.to_string());
        let text = format!(
            "daemon off; pid {path}/pid; error_log {path}/error.log; worker_processes 1; events {{}}
             http {{ access_log off; client_body_temp_path {path}/body; proxy_temp_path {path}/proxy; fastcgi_temp_path {path}/fastcgi;
             uwsgi_temp_path {path}/uwsgi; scgi_temp_path {path}/scgi;
             server {{ listen 127.0.0.1:{port}; {location} }} }}"
        );
        std::fs::write(folder.path().join("nginx.conf"), text).unwrap();
        let process = Command::new(fencehold_test_servers::installed("debian/usr/sbin/nginx"))
            .args(["-e", "stderr", "-c"])
            .arg(folder.path().join("nginx.conf"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut nginx = Nginx { process, port, _folder: folder };
        crate::security::fixture::eventually("nginx listens", || {
            if nginx.process.try_wait().unwrap().is_some() {
                let mut said = String::new();
                let _ = nginx.process.stderr.take().unwrap().read_to_string(&mut said);
                panic!("nginx ended: {said}");
            }
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        nginx
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It ends its workers on this signal alone.
        let _ = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }
}

#[test]
fn it_works_under_a_path_behind_nginx() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    fixture.acquire(&operator, "deploy/a", 1, 30_000);
    let nginx = Nginx::start(fixture.address);
    in_browser("prefix", |browser| {
        let origin = format!("http://127.0.0.1:{}/fencehold", nginx.port);
        log_in(browser, &origin, &operator);
        assert_eq!(browser.url(), format!("{origin}/"));
        browser.follow("Leases");
        browser.until("that it is live", || browser.has("#live[data-state=live]"));
        fixture.acquire(&operator, "deploy/b", 2, 30_000);
        browser.reads("deploy/b");
        browser.follow("deploy/a");
        browser.click("#revoke summary");
        browser.write("input[name=reason]", "wrong branch");
        browser.click("input[name=confirm]");
        browser.click("button.danger");
        browser.reads("The hold was ended by force");
        browser.click("#settings summary");
        browser.click("button[name=theme][value=dark]");
        browser.until("the dark page", || browser.has("html[data-theme=dark]"));
        for name in
            ["Queues", "Jobs", "Workers", "Schedules", "Effects", "Audit", "Access tokens", "Overview"]
        {
            browser.follow(name);
            browser.until(name, || {
                browser.has("nav a[aria-current=page]") && browser.url().starts_with(&origin)
            });
        }
        browser.reload();
        browser.reads("Overview");
        browser.was_clean(&origin, &[]);
    });
}
