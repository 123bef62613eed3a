"""Roles of an air-gap bridge: one identity, one zone, one direction (AGB0 4.3, J3, RESOLUTIONS P5).

``config`` declares bridge.yaml, ``mapping`` the rules that name import streams, ``templates`` the tokens of
each role, ``path_check`` shows that no token leads back, ``session`` connects to the one hub of a role.
"""
