//! Every page, as people see it: in light and dark, on a wide screen and on a phone, and as axe-core judges it.

use std::path::Path;

use fencehold_test_servers::chromium::{Chromium, in_browser, pictures};
use serde_json::Value;

use super::scene::Scene;
use super::{log_in, origin};
use crate::security::fixture::SecurityFixture;

/// The pages, by the name of their picture.
fn pages(scene: &Scene<'_>) -> Vec<(&'static str, String)> {
    let pages = [
        ("overview", "/"),
        ("leases", "/leases"),
        ("lease", "/lease?key=reports%2Fdaily"),
        ("matching-leases", "/matching-leases?prefix=gpu%2F"),
        ("queues", "/queues"),
        ("jobs", "/jobs"),
        ("matching-jobs", "/matching-jobs?queue=emails&state=failed"),
        ("workers", "/workers"),
        ("worker", "/worker?owner=reports-2"),
        ("schedules", "/schedules"),
        ("effects", "/effects"),
        ("audit", "/audit"),
        ("access-tokens", "/access-tokens"),
    ];
    let jobs = [("job", &scene.crashed_job), ("failed-job", &scene.failed_job)];
    let jobs = jobs.map(|(name, id)| (name, format!("/job?id={id}")));
    let pages = pages.map(|(name, path)| (name, path.to_owned()));
    pages.into_iter().chain(jobs).collect()
}

/// Has axe-core look at the page: what it finds, with the elements.
fn check_accessibility(browser: &Chromium, name: &str) {
    let file = fencehold_test_servers::installed("node/node_modules/axe-core/axe.min.js");
    let axe = std::fs::read_to_string(file).unwrap();
    browser.script(&axe);
    let found = browser.script_until_called(
        "const done = arguments[arguments.length - 1]; axe.run(document, { resultTypes: ['violations'] }).then(found => done( \
         found.violations.map(one => one.id + ': ' + one.nodes.map(node => node.html + ' ' + node.failureSummary).join('; '))), \
         problem => done([String(problem)]));",
    );
    assert_eq!(found, Value::Array(Vec::new()), "{name}");
}

#[test]
fn every_page_is_readable_in_light_and_dark_and_on_a_phone() {
    let fixture = SecurityFixture::new();
    let scene = Scene::arrange(&fixture);
    in_browser("every-page", |browser| {
        let origin = origin(&fixture);
        log_in(browser, &origin, &scene.operator);
        for (name, path) in pages(&scene) {
            browser.open(&format!("{origin}{path}"));
            for colours in ["light", "dark"] {
                browser.set_colours(colours);
                check_accessibility(browser, &format!("{name}, {colours}"));
                browser.picture(&format!("{name}-{colours}"));
            }
            browser.set_colours("light");
            browser.be_narrow();
            let excess = browser
                .script("return document.documentElement.scrollWidth - document.documentElement.clientWidth");
            assert!(excess.as_i64().unwrap() <= 0, "{name}: a phone has to scroll sideways: {excess}");
            browser.picture(&format!("{name}-narrow"));
            browser.be_wide();
        }
        browser.was_clean(&origin, &[]);
    });
    keep_for_docs();
}

/// `FENCEHOLD_WRITE_PICTURES=1` renews those that the documentation shows.
fn keep_for_docs() {
    if std::env::var_os("FENCEHOLD_WRITE_PICTURES").is_none() {
        return;
    }
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/img");
    std::fs::create_dir_all(&docs).unwrap();
    for name in ["overview-light", "lease-light"] {
        let file = format!("{name}.png");
        std::fs::copy(pictures().join(&file), docs.join(format!("dashboard-{file}"))).unwrap();
    }
}

#[test]
fn a_server_with_nothing_in_it_is_readable_too() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    in_browser("empty", |browser| {
        let origin = origin(&fixture);
        browser.open(&format!("{origin}/"));
        check_accessibility(browser, "log in");
        browser.picture("login-light");
        log_in(browser, &origin, &operator);
        check_accessibility(browser, "the empty overview");
        browser.picture("empty-overview-light");
        browser.open(&format!("{origin}/jobs"));
        browser.reads("There are no jobs.");
        browser.was_clean(&origin, &[]);
    });
}

#[test]
fn colours_follow_the_system_until_a_person_chooses() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    in_browser("colours", |browser| {
        let origin = origin(&fixture);
        let ground = || browser.script("return getComputedStyle(document.body).backgroundColor");
        log_in(browser, &origin, &operator);
        let light = ground();
        browser.set_colours("dark");
        let dark = ground();
        assert_ne!(light, dark, "the system's choice");
        browser.click("#settings summary");
        browser.click("button[name=theme][value=light]");
        browser.until("the light page", || ground() == light);
        browser.open(&format!("{origin}/leases"));
        assert_eq!(ground(), light, "it is kept");
        browser.click("#settings summary");
        browser.click("button[name=theme][value=system]");
        browser.until("the system's choice again", || ground() == dark);
        assert!(browser.url().ends_with("/leases"), "{}", browser.url());
        browser.was_clean(&origin, &[]);
    });
}
