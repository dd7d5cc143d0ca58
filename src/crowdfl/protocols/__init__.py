"""The protocols of CrowdFL as pure steps between parties: no network, no disk, no clock.

Every party is built from its own key share alone and speaks in bytes, so that a service can carry the messages unchanged.
"""
