//! Checks of the storage before the first checkpoint, and the folder of the run on it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::errno::Errno;
use ringmark_core::benchmark::checkpoint::{CheckpointConfig, Combination, FileIo, Storage, WriteMode, Writers, parts};
use ringmark_core::dimension::Bytes;
use ringmark_core::host::RankPlace;
use tch::Device;

use crate::benchmark::checkpoint::files::RankFiles;
use crate::benchmark::checkpoint::state::CheckpointState;
use crate::host::facts;
use crate::host::file_system::{self, FileSystem};
use crate::job::world::World;

/// Returns the path of a new folder for the run, in the folder of the configuration. All ranks call this together.
pub fn folder_of_run(config: &CheckpointConfig, world: &World) -> PathBuf {
    config.folder.join(world.broadcast_text(format!("ringmark-checkpoint-{:016x}", facts::random_id())))
}

/// Checks the storage of every host and creates the folder of the run; returns the storage of every host. All ranks call
/// this together.
pub fn prepare(config: &CheckpointConfig, folder: &Path, ranks: &[RankPlace], world: &World) -> Result<Vec<Storage>> {
    let is_first = world.local_rank() == 0;
    let found = is_first.then(|| find(&config.folder)).transpose()?;
    if world.rank() == 0 {
        create(folder)?;
    }
    world.sleeping_barrier();
    let own = found.map(|(file_system, free)| Storage {
        host: world.host().to_owned(),
        file_system: file_system.kind,
        source: file_system.source,
        free,
        is_shared: folder.exists(),
    });
    let storage: Vec<Storage> = world.gather_values(&own)?.into_iter().flatten().collect();
    if let Some(own) = &own {
        check_space(config, own, &storage, ranks)?;
        create(folder)?;
    }
    world.sleeping_barrier();
    Ok(storage)
}

/// Returns the file system and the free space of a folder. Refuses one in memory.
fn find(folder: &Path) -> Result<(FileSystem, Bytes)> {
    let shown = folder.display();
    ensure!(folder.is_dir(), "--folder {shown} is not a folder on this host: create it on every host");
    let read = || anyhow::Ok((FileSystem::of_folder(folder)?, file_system::free_space(folder)?));
    let (file_system, free) = read().with_context(|| format!("--folder {shown}"))?;
    ensure!(
        !file_system.is_in_memory(),
        "--folder {shown} is in memory ({}), which is no storage: choose a folder on a disk or a file server",
        file_system.kind
    );
    Ok((file_system, free))
}

fn create(folder: &Path) -> Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("folder {} cannot be created", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Fails if the storage of this host is too small for the largest checkpoint: that of all hosts that share it.
fn check_space(config: &CheckpointConfig, own: &Storage, storage: &[Storage], ranks: &[RankPlace]) -> Result<()> {
    let hosts: BTreeMap<&str, bool> = storage
        .iter()
        .map(|other| (other.host.as_str(), other.host == own.host || other.is_shared && own.is_shared))
        .collect();
    let pages = config.bytes().0 / parts::PAGE;
    let needed = |writers: Writers| -> u64 {
        let here = ranks.iter().filter(|rank| hosts.get(rank.host.as_str()).copied().unwrap_or(false));
        here.map(|rank| writers.pages(pages, rank.rank, ranks.len() as u32, rank.local_rank)).sum()
    };
    let largest = config.writers.0.iter().map(|writers| (needed(*writers), writers)).max_by_key(|(pages, _)| *pages);
    let Some((pages, writers)) = largest else { return Ok(()) };
    let needed = Bytes(pages * parts::PAGE);
    ensure!(
        needed.0 <= own.free.0,
        "--folder {}: a checkpoint with --writers {writers} needs {:.3} GB, but {:.3} GB are free: free some space, or choose \
         another folder or a smaller --size",
        config.folder.display(),
        needed.gigabytes(),
        own.free.gigabytes()
    );
    Ok(())
}

/// Writes one page past the page cache if that is measured. All ranks call this together.
///
/// # Errors
///
/// Fails if the file system does not support it.
pub fn check_direct(config: &CheckpointConfig, files: &RankFiles, world: &World) -> Result<()> {
    if config.io.0.contains(&FileIo::Direct) && world.local_rank() == 0 {
        let page = CheckpointState::new(1, Device::Cpu)?;
        let combination =
            Combination { writers: Writers::Rank0, files: 1, io: FileIo::Direct, mode: WriteMode::Blocking };
        if let Err(error) = files.write(page.to_write(), combination, Instant::now()) {
            let number = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
            if number == Some(Errno::EINVAL as i32) {
                bail!(
                    "--io direct: the file system of {} does not support O_DIRECT: use --io buffered",
                    config.folder.display()
                );
            }
            return Err(anyhow!(error));
        }
        files.remove()?;
    }
    world.sleeping_barrier();
    Ok(())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use ringmark_core::options::value::ValueList;

    use super::*;
    use crate::temporary_folder::without_folder;

    /// Two hosts with two ranks each, and a checkpoint of 10 pages.
    #[test]
    fn space_of_a_shared_folder_is_that_of_all_hosts() {
        let ranks: Vec<RankPlace> =
            (0..4).map(|rank| RankPlace::on_cpu(rank, rank % 2, ["a", "b"][rank as usize / 2])).collect();
        let needs = |writers, is_shared, pages: u64| {
            let config = CheckpointConfig {
                folder: "/scratch".into(),
                size: Some(Bytes(10 * parts::PAGE)),
                writers: ValueList(vec![writers]),
                ..CheckpointConfig::default()
            };
            let storage = |host: &str, is_shared| Storage {
                host: host.to_owned(),
                file_system: "nfs4".to_owned(),
                source: "server:/export".to_owned(),
                free: Bytes(pages * parts::PAGE),
                is_shared,
            };
            let all = [storage("a", true), storage("b", is_shared)];
            check_space(&config, &all[1], &all, &ranks)
        };
        for (writers, alone, shared) in
            [(Writers::Rank0, 0, 10), (Writers::Host, 10, 20), (Writers::Ranks, 20, 40), (Writers::Shards, 5, 10)]
        {
            needs(writers, false, alone).expect("enough");
            needs(writers, true, shared).expect("enough");
            assert!(
                needs(writers, true, shared - 1).is_err() && (alone == 0 || needs(writers, false, alone - 1).is_err())
            );
        }
        expect!["--folder /scratch: a checkpoint with --writers ranks needs 0.000 GB, but 0.000 GB are free: free some space, or choose another folder or a smaller --size"].assert_eq(&needs(Writers::Ranks, true, 39).expect_err("too little").to_string());
    }

    #[test]
    fn folders_that_are_no_storage_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let refused = |path: &Path| format!("{:#}", find(path).expect_err("refused"));
        let missing = without_folder(&refused(&folder.path().join("missing")));
        expect!["--folder DIR/missing is not a folder on this host: create it on every host"].assert_eq(&missing);
        expect![
            "--folder /dev/shm is in memory (tmpfs), which is no storage: choose a folder on a disk or a file server"
        ]
        .assert_eq(&refused(Path::new("/dev/shm")));
    }
}
