//! Processor time, memory, disk and network of processes, sampled while they run.
