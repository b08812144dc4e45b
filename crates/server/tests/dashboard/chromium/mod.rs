//! The dashboard in a real browser.

mod acts;
mod every_page;
mod intruders;
mod places;
mod scene;

use fencehold_test_servers::chromium::Chromium;

use crate::security::fixture::{SecurityFixture, TestToken};

/// Where a server is.
fn origin(fixture: &SecurityFixture) -> String {
    format!("http://{}", fixture.address)
}

/// Logs in as a person does.
fn log_in(browser: &Chromium, origin: &str, token: &TestToken) {
    browser.open(&format!("{origin}/login"));
    browser.write("input[name=access_token]", &token.bearer.reveal());
    browser.click("button.primary");
    browser.reads("Overview");
}
