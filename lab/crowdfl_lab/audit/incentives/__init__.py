"""What people who cheat would earn under each rule of payment, on real data: `crowdfl audit incentives`."""
