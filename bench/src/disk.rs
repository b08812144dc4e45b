//! The disk's own rate: append 4 KiB and `fdatasync`, in the directory of the store. Nothing durable can be faster for
//! one caller at a time; what a store adds shows in the ratio.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fencehold_load::Latencies;

use crate::figure::Figure;

pub(crate) struct DiskLoad {
    file: File,
    path: PathBuf,
    pub(crate) latencies: Latencies,
}

impl DiskLoad {
    pub(crate) fn open(directory: &Path) -> io::Result<DiskLoad> {
        let path = directory.join("bench-disk.tmp");
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        Ok(DiskLoad { file, path, latencies: Latencies::default() })
    }

    /// Measures for a while. Called between the other measurements, so that both see the same weather.
    pub(crate) fn sample(&mut self, time: Duration) -> io::Result<()> {
        let block = [0x5a; 4096];
        let started = Instant::now();
        while started.elapsed() < time {
            let before = Instant::now();
            self.file.write_all(&block)?;
            self.file.sync_data()?;
            self.latencies.add(before.elapsed());
        }
        Ok(())
    }

    /// What was seen, as a line of the page.
    pub(crate) fn line(&self) -> Figure {
        let (p50_us, p99_us) = (self.latencies.percentile_us(50.0), self.latencies.percentile_us(99.0));
        let what = format!("disk: append 4 KiB + fdatasync ({} samples)", self.latencies.len());
        Figure { per_second: 1e6 / p50_us.max(1.0), p50_us, p99_us, ..Figure::new(what, 1) }
    }
}

impl Drop for DiskLoad {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
