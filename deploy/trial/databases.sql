-- One for each role: a real campaign has one server for each role, too.
CREATE DATABASE crowdfl_kgc;
CREATE DATABASE crowdfl_sp;
CREATE DATABASE crowdfl_csp;
