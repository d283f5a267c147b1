//! Parser of NCCL's log with `NCCL_DEBUG=INFO` and `NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING,NET`: which algorithms,
//! protocols and transports were used.
//!
//! Every rank logs its own connections. Rank 0 alone logs choices, one line per call: by number since NCCL 2.20, with
//! the name of the collective since 2.23, by name and with channels since 2.24. NCCL 2.19 and older log no choices, and
//! a single rank never does. Symmetric kernels over registered windows have a different format and are skipped.

use std::collections::BTreeSet;

use ringmark_core::number_text::count;

/// Algorithms by NCCL's number, which did not change from 2.14 to 2.28, spelled as in `NCCL_ALGO` and `NCCL_PROTO`.
const ALGORITHMS: [&str; 7] = ["Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"];
const PROTOCOLS: [&str; 3] = ["LL", "LL128", "Simple"];

/// Algorithm and protocol of one collective of one size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Name such as `AllReduce`; not logged before NCCL 2.23.
    pub collective: Option<String>,
    /// Size of the call.
    pub bytes: u64,
    /// Algorithm: `Ring`, `Tree`, `NVLS` ...
    pub algorithm: String,
    /// Protocol: `Simple`, `LL` or `LL128`.
    pub protocol: String,
    /// Number of thread blocks, each with its part of the data; not logged before NCCL 2.24.
    pub channels: Option<u32>,
}

/// Contents of NCCL's log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NcclUse {
    /// Last choice for every collective and size, in order of first occurrence.
    pub choices: Vec<Choice>,
    /// Transports of the ranks that wrote the log, such as `NET/Socket` or `P2P/CUMEM`, without device numbers; sorted.
    pub transports: Vec<String>,
    /// Network selected for traffic between hosts, such as `Socket` or `IB`. It was used only if `transports` contains
    /// `NET/`.
    pub network: Option<String>,
    /// Interfaces of that network: `eth0:10.0.0.1`, `mlx5_0:1/RoCE` (device, port, link).
    pub interfaces: Vec<String>,
    /// Maximum number of channels of a collective.
    pub channels: Option<u32>,
}

/// Parses the log of one rank, or the concatenated logs of several.
pub fn parse(log: &str) -> NcclUse {
    let mut used = NcclUse::default();
    let mut transports = BTreeSet::new();
    for (_, message) in log.lines().filter_map(|line| line.split_once("NCCL INFO ")) {
        if let Some(choice) = parse_choice(message) {
            let is_same = |known: &&mut Choice| known.bytes == choice.bytes && known.collective == choice.collective;
            match used.choices.iter_mut().find(is_same) {
                Some(known) => *known = choice,
                None => used.choices.push(choice),
            }
        } else if message.starts_with("Channel ") || message.starts_with("CollNet ") {
            transports.extend(message.split_once(" via ").map(|(_, path)| transport(path)));
        } else if let Some(network) = message.strip_prefix("Using network ") {
            used.network = Some(network.trim_end().to_owned());
        } else if let Some((_, list)) = message.strip_prefix("NET/").and_then(|rest| rest.split_once(" : Using ")) {
            used.interfaces.extend(interfaces(list).map(str::to_owned));
        } else if let Some((number, _)) = message.split_once(" coll channels") {
            used.channels = number.parse().ok();
        }
    }
    used.transports = transports.into_iter().collect();
    let mut seen = BTreeSet::new();
    used.interfaces.retain(|name| seen.insert(name.clone()));
    used
}

/// Parses `AllReduce: 4 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}` or `4 Bytes -> Algo 1 proto 0 time 9.8`.
fn parse_choice(message: &str) -> Option<Choice> {
    let (size, how) = message.split_once(" Bytes -> Algo ")?;
    let (collective, bytes) = size.split_once(": ").unwrap_or(("", size));
    let mut parts = how.split_whitespace();
    let (algorithm, _, protocol) = (parts.next()?, parts.next()?, parts.next()?);
    let channels = || {
        let (low, high) = how.split_once("={")?.1.split_once('}')?.0.split_once("..")?;
        high.parse::<u32>().ok()?.checked_sub(low.parse().ok()?)?.checked_add(1)
    };
    Some(Choice {
        collective: Some(collective.to_owned()).filter(|name| !name.is_empty()),
        bytes: bytes.trim().parse().ok()?,
        algorithm: full_name(algorithm, &ALGORITHMS),
        protocol: full_name(protocol, &PROTOCOLS),
        channels: channels(),
    })
}

/// Returns the name for `1`, `RING` or `Ring`; a name that is not in `names` is returned unchanged.
fn full_name(name: &str, names: &[&str]) -> String {
    let by_number = name.parse::<usize>().ok().and_then(|number| names.get(number));
    let by_name = || names.iter().find(|known| known.eq_ignore_ascii_case(&name.replace('_', "")));
    by_number.or_else(by_name).map_or(name, |known| known).to_owned()
}

/// Removes the numbers of device, proxy and relay; `SHM/direct/direct`, of sender and receiver, becomes `SHM/direct`.
fn transport(path: &str) -> String {
    let mut parts: Vec<&str> = path.trim_end().split('/').collect();
    parts.retain(|part| !part.starts_with(|first: char| first.is_ascii_digit()));
    parts.dedup();
    parts.join("/")
}

/// Parses `[0]eth0:10.0.0.1<0>`, `[0]mlx5_0:1/IB [RO]; OOB ...` or merged `[0]={[0] mlx5_0:1/IB, [1] mlx5_1:1/IB}`.
fn interfaces(list: &str) -> impl Iterator<Item = &str> {
    let parts = list.split(';').next().unwrap_or_default().split_whitespace();
    let names = parts.filter_map(|part| part.rsplit(']').next()?.split(['<', ',', '}']).next());
    names.filter(|name| name.contains(':'))
}

impl NcclUse {
    /// Describes the log for users, one line per fact; empty if nothing was logged.
    pub fn lines(&self) -> Vec<String> {
        let choice = |Choice { collective, bytes, algorithm, protocol, channels }: &Choice| {
            let collective = collective.as_deref().unwrap_or("collective");
            let channels = channels.map(|number| format!(", {}", count(number, "channel"))).unwrap_or_default();
            format!("{collective} of {bytes} bytes: {algorithm}, {protocol}{channels}")
        };
        let over = if self.interfaces.is_empty() { "" } else { " over " };
        let network = self.network.iter().map(|name| format!("network: {name}{over}{}", self.interfaces.join(", ")));
        let transports = self.transports.iter().map(|name| format!("transport: {name}"));
        let most = self.channels.map(|number| format!("at most: {}", count(number, "channel")));
        self.choices.iter().map(choice).chain(most).chain(transports).chain(network).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_logs_without_choices_up_to_2_19() {
        // NCCL 2.14.3, published without prefixes. Host names are shortened here and below.
        let log = "NCCL INFO Bootstrap : Using eth0:10.10.1.1<0>\nNCCL version 2.14.3+cuda11.2
NCCL INFO NET/Socket : Using [0]eth0:10.10.1.1<0>\nNCCL INFO Using network Socket\nNCCL INFO Channel 00/04 :    0   1
NCCL INFO Channel 00/0 : 0[3f000] -> 1[40000] via P2P/IPC
NCCL INFO 4 coll channels, 4 p2p channels, 4 p2p channels per peer\n";
        let lines = parse(log).lines();
        assert_eq!(lines, ["at most: 4 channels", "transport: P2P/IPC", "network: Socket over eth0:10.10.1.1"]);
    }

    #[test]
    fn parses_choices_by_number_and_plugins() {
        // NCCL 2.22.3 (NVIDIA/nccl issues 1453, 1538: tags of mpirun, and the table of nccl-tests in the same line);
        // 2.23, the only version with this format; HPC-X's network over merged devices (nccl-tests issue 373); another
        // plugin, over a proxy rank.
        let log = "[0]  512  128  float  sum  -1[0] worker-1:497888:497888 [0] NCCL INFO 512 Bytes -> Algo 0 proto 0 time 25.259054
[0] worker-1:497888:498098 [0] NCCL INFO Channel 07/0 : 0[0] -> 8[0] [send] via NET/IBext_v8/7/GDRDMA
worker-0:5670:5810 [7] NCCL INFO Channel 02/0 : 7[7] -> 0[0] via P2P/CUMEM
2: node-0:309:309 [0] NCCL INFO AllGather: 37756928 Bytes -> Algo 1 proto 2 time 2860.208008
bigo:1884:2298 [0] NCCL INFO NET/IB : Using [0]={[0] mlx5_2:1/RoCE, [1] mlx5_3:1/RoCE} [1]={[2] mlx5_0:1/RoCE, [3] mlx5_1:1/RoCE} [RO]; OOB bond0.526:169.136.106.9<0>
bigo:1884:2298 [0] NCCL INFO Using network IBext_v8
vm-host38:33958:34017 [1] NCCL INFO Channel 01/1 : 3[0] -> 0[1] [send] via NET/NCCL RDMA Plugin v6/0(2)/GDRDMA/Shared";
        let lines = [
            "collective of 512 bytes: Tree, LL",
            "AllGather of 37756928 bytes: Ring, Simple",
            "transport: NET/IBext_v8/GDRDMA",
            "transport: NET/NCCL RDMA Plugin v6/GDRDMA/Shared",
            "transport: P2P/CUMEM",
            "network: IBext_v8 over mlx5_2:1/RoCE, mlx5_3:1/RoCE, mlx5_0:1/RoCE, mlx5_1:1/RoCE",
        ];
        assert_eq!(parse(log).lines(), lines);
    }

    #[test]
    fn parses_choices_by_name_since_2_24() {
        // NCCL 2.27.5: a host without InfiniBand, whose log contains "Using" nevertheless, and one that was set to use
        // rings.
        let log = "MS-7D31:1463326:1463512 [0] NCCL INFO NET/IB : Using [RO]; OOB enp6s0:192.168.68.52<0>
MS-7D31:1463326:1463512 [0] NCCL INFO NET/Socket : Using [0]enp6s0:192.168.68.52<0> [7]vethb485ae1:fe80::2034:8eff:fea5:3cc5%vethb485ae1<0>
MS-7D31:1463326:1463512 [0] NCCL INFO Using network Socket
MS-7D31:1463326:1463523 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct
aihub0007:177787:177787 [0] NCCL INFO AllReduce: 4 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}
aihub0007:185302:185302 [0] NCCL INFO AllReduce: 4 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..0}";
        let lines = [
            "AllReduce of 4 bytes: Ring, Simple, 1 channel",
            "transport: SHM/direct",
            "network: Socket over enp6s0:192.168.68.52, vethb485ae1:fe80::2034:8eff:fea5:3cc5%vethb485ae1",
        ];
        assert_eq!(parse(&format!("{log}\n{log}")).lines(), lines);
        // NCCL 2.28.9 on two hosts, except the first line, which is from 2.29 and has the same format.
        let log = "NCCL INFO AllReduce: 67108864 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}
spark-4440:24302:24302 [0] NCCL INFO NET/IB : Using [0]rocep1s0f1:1/RoCE [1]roceP2p1s0f1:1/RoCE [RO]; OOB enp1s0f1np1:192.168.100.16<0>
spark-4440:24302:24302 [0] NCCL INFO Using network IB
spark-fb97:23491:23491 [0] NCCL INFO 16 coll channels, 16 collnet channels, 0 nvls channels, 16 p2p channels, 2 p2p channels per peer
spark-4440:24302:24302 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [receive] via NET/IB/1";
        let lines = parse(log).lines();
        assert_eq!(lines[..2], ["AllReduce of 67108864 bytes: Ring, Simple, 24 channels", "at most: 16 channels"]);
        assert_eq!(lines[2..], ["transport: NET/IB", "network: IB over rocep1s0f1:1/RoCE, roceP2p1s0f1:1/RoCE"]);
    }
}
