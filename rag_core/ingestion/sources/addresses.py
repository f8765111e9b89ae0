"""The network addresses that requests can make this machine connect to."""

from ipaddress import IPv6Address, ip_address, ip_network

_GLOBAL_IPV6 = ip_network("2000::/3")
"""The only IPv6 addresses that are routed. Mapped, compatible, NAT64, local and multicast ones are outside."""

_REFUSED = [
    ip_network(network)
    for network in (
        "0.0.0.0/8",  # this host
        "100.100.100.200/32",  # metadata of Alibaba Cloud
        "168.63.129.16/32",  # metadata of Azure: a public address
        "169.254.0.0/16",  # link-local; metadata of most clouds
        "192.0.0.0/24",  # protocol assignments; metadata of Oracle Cloud
        "192.88.99.0/24",  # 6to4 relays
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        "2001::/23",  # Teredo, ORCHID and other protocol assignments
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
        "fd00:ec2::/32",  # metadata of AWS
        "fd20:ce::/32",  # metadata of Google Cloud
        "fe80::/10",  # link-local
    )
]
_PRIVATE = [
    ip_network(network)
    for network in (
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "::1/128",
        "fc00::/7",
    )
]


def is_allowed_address(address: str, private_networks: bool) -> bool:
    """True for a public unicast address; with `private_networks` also for a private or loopback one.

    Metadata services, link-local addresses and IPv6 forms of an IPv4 address are never allowed.
    """
    try:
        ip = ip_address(address)
    except ValueError:  # with a scope, such as fe80::1%eth0
        return False
    if any(ip in network for network in _REFUSED):
        return False
    if any(ip in network for network in _PRIVATE):
        return private_networks
    return ip.is_global and (not isinstance(ip, IPv6Address) or ip in _GLOBAL_IPV6)
